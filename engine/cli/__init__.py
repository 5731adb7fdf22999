"""Command line of the engine, `python -m engine`: one function per subcommand."""
