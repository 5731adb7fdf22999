"""Documents: their text extracted in a child process, cut into passages, indexed and searched."""
