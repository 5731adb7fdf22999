"""Tools: their switches, every call that was made, and what was allowed."""
