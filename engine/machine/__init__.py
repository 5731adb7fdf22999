"""Host machine: available memory, CPU cores, background tasks."""
