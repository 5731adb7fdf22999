"""Child processes of the app, with limits of time, memory and output."""
