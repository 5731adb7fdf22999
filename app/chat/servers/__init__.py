"""Engines elsewhere, and the server for other programs."""
