"""Readers: one module a format, each with `read(source) -> Document`; run in the child process."""
