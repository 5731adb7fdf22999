"""Import and export of chats in the window: the preview of a file, and the progress."""
