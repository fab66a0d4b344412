"""PlanEMQX's workload behind a link that is too slow for it."""
