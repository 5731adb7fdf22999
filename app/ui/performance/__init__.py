"""Performance page."""
