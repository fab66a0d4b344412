"""The control plane: it watches the broker, plans, applies, and checks what came of it."""
