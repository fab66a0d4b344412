"""The jobs: what they read, which transformations they apply, where the result goes."""
