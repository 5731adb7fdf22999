"""Palettes, fonts, icons and the Qt style sheet."""
