"""One message of the transcript: its sections, blocks, controls and tools."""
