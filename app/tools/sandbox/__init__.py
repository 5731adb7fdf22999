"""A sandbox for Python programs that a model wrote: one process, and nothing of this computer."""
