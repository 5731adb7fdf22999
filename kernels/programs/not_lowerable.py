"""NotLowerable: what a backend raises while it lowers a program that it cannot run."""

from __future__ import annotations

from collections.abc import Mapping


class NotLowerable(Exception):
    """An instruction and what keeps it from being lowered: "Attend with sinks"."""

    def __init__(self, one: object, what: str = "") -> None:
        super().__init__(f"{type(one).__name__} {what}".rstrip())


def refuse(one: object, lacking: Mapping[str, bool]) -> None:
    """Raise NotLowerable for an instruction with the first words whose condition holds."""
    for what, holds in lacking.items():
        if holds:
            raise NotLowerable(one, what)
