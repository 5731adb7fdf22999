"""Lists of files in archives that the standard library cannot read, from their headers alone."""
