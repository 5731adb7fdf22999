"""Tool calls in answers: how a model writes them, parsed from its text and constrained to schemas."""
