"""`python -m bench.simulator`: the kernel against Ciw and SimPy; `.predicting`: the model."""
