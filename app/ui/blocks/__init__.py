"""Blocks of a message: how text, code and tables are laid out and painted."""
