"""A world that changes: what planning makes of it, second by second."""
