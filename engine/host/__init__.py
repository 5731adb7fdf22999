"""The host machine: memory, cores, background tasks."""
