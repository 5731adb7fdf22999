"""Downloads: the queue, resumable transfers, and what survives a restart."""
