"""Widgets and helpers shared by several screens."""
