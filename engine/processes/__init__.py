"""Child processes, with limits of time, memory and output."""
