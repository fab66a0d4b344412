"""Queueing theory and simulation: what a policy would do."""
