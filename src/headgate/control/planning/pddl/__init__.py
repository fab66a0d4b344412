"""The same problem in PDDL: written, solved by engines in processes of their own, checked."""
