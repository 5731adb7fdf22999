"""Layout and painting of message blocks: text, code and tables."""
