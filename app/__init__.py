"""Tokonoma: a desktop chat application for language models on the user's own machine."""

__version__ = "0.1.0"
