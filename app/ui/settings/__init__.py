"""The settings screen, with the About section and the list of keyboard shortcuts."""
