"""Engine clients: send commands to an engine and deliver its events."""
