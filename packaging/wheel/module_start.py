"""`python -m tokonoma`: opens the window."""

from tokonoma import open_window  # pyright: ignore[reportMissingImports]

open_window()
