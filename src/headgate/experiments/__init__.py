"""Reproduction of the papers' experiments, and the scenarios that come with Headgate."""
