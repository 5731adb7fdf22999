"""Tools: the built-in ones, servers of tools, and the sandbox that programs run in; no Qt."""
