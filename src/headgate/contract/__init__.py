"""What the planes share, as frozen data."""
