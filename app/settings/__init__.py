"""Settings: the table of names, types, defaults and ranges, and those of one model."""
