"""Dates and times in words, as models write them, and calculations with them."""
