"""Attached files on the screen: chips, the text that the model reads, and whether it fits."""
