"""PlanEMQX end to end: the real controller plans, the live broker obeys, applications judge."""
