"""Resource limits for rendering a chat template: CPU time, memory, value sizes.

They are far above the needs of any known template for a long conversation, and low enough that a
hostile template is stopped within seconds and megabytes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from time import thread_time

import jinja2

MAX_ITEMS = 200_000  # items in one value, nested ones included
MAX_INTEGER = 20_000  # bits
_STEPS_PER_CLOCK_CHECK = 16


class Exhausted(jinja2.TemplateError):
    """The template exceeded a limit; the message completes a sentence, "the template ..."."""


@dataclass
class Budget:
    """Resources left to one rendering. `text` is the longest allowed value in characters."""

    text: int = 500_000
    bytes_left: int = 96_000_000
    seconds: float = 3.0  # of this thread's CPU time
    depth: int = 0
    _steps_to_clock_check: int = 0
    _started: float = field(default_factory=thread_time)

    def step(self, count: int = 1) -> None:
        """Count steps; checks the clock every few of them."""
        self._steps_to_clock_check -= count
        if self._steps_to_clock_check < 0:
            self.check_clock()

    def check_clock(self) -> None:
        """Raise Exhausted once the CPU time is used up."""
        self._steps_to_clock_check = _STEPS_PER_CLOCK_CHECK
        if thread_time() - self._started > self.seconds:
            raise Exhausted("takes too long")

    def check_length(self, characters: int) -> None:
        """Raise Exhausted if a value of this many characters is too long."""
        if characters > self.text:
            raise Exhausted("creates a text that is too long")

    def charge(self, value: object) -> None:
        """Charge the memory of a new value and check its size, nested values included."""
        self.bytes_left -= sys.getsizeof(value)
        if self.bytes_left < 0:
            raise Exhausted("uses too much memory")
        if isinstance(value, str):
            self.check_length(len(value))
        else:
            self.count_characters(value)

    def count_characters(self, *values: object) -> int:
        """Characters in `values`, nested ones included; a list that occurs twice counts twice."""
        items, characters = 0, 0
        stack = list(values)
        while stack:
            value = stack.pop()
            items += 1
            if isinstance(value, str):
                characters += len(value)
            elif isinstance(value, list | tuple | dict):
                if items + len(stack) + 2 * len(value) > MAX_ITEMS:
                    raise Exhausted("creates a list that is too long")
                stack.extend(value)
                if isinstance(value, dict):
                    stack.extend(value.values())
            elif isinstance(value, int) and value.bit_length() > MAX_INTEGER:
                raise Exhausted("creates a number that is too large")
            else:
                characters += 30  # upper bound for a number or a name as text
        self.check_length(characters)
        self.step(items // 8)
        return characters
