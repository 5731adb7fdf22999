"""The command line, `python -m engine`: one function a subcommand."""
