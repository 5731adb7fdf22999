"""The machine around the app: paths, log, single instance, JSON files."""
