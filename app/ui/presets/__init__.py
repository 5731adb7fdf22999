"""The page of presets: the list, and the fields of one."""
