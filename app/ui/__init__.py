"""Qt widgets: the main window and a package for each screen."""
