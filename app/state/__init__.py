"""Observable state: what the window shows; changed by `app.chat` and `app.library` only."""
