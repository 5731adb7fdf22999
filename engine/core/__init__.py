"""Core: sequences, the scheduler that runs them together, and the passes of the model."""
