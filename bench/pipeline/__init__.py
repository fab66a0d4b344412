"""`python -m bench pipeline`: the Spark jobs, measured."""
