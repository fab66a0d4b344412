"""`python -m bench.simulator`: the kernel against Ciw and SimPy, and the model's speed."""
