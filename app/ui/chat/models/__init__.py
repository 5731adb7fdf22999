"""The model of a chat in the window: its picker, its line, and where its words go."""
