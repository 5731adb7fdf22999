"""The tools of the app itself, one file a tool or a pair of them."""
