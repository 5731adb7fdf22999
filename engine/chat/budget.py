"""What one rendering of a chat template may use up: steps, processor time, bytes, sizes.

The limits are far above what any known template needs for a long conversation, and low enough that
a hostile one ends within seconds and megabytes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from time import thread_time

import jinja2

MAX_ITEMS = 200_000  # values inside one value, counted through all levels
MAX_INTEGER = 20_000  # bits
_STEPS_PER_LOOK = 16  # at the clock


class Exhausted(jinja2.TemplateError):
    """The template asked for more than it may have; the message ends "the template ..."."""


@dataclass
class Budget:
    """What one rendering may use up. `text` characters is the limit of a single value."""

    text: int = 500_000
    bytes_left: int = 96_000_000
    steps_left: int = 400_000
    seconds: float = 1.0  # of this thread's processor time
    depth: int = 0
    _look_in: int = 0
    _started: float = field(default_factory=thread_time)

    def step(self, count: int = 1) -> None:
        """Count steps, and look at the clock now and then."""
        self.steps_left -= count
        self._look_in -= count
        if self.steps_left < 0:
            raise Exhausted("does not come to an end")
        if self._look_in < 0:
            self.look()

    def look(self) -> None:
        """Look at the clock."""
        self._look_in = _STEPS_PER_LOOK
        if thread_time() - self._started > self.seconds:
            raise Exhausted("takes too long")

    def room(self, characters: int) -> None:
        """Make sure a value of this many characters may be made."""
        if characters > self.text:
            raise Exhausted("makes a text that is too long")

    def take(self, value: object) -> None:
        """Account for a value that was just made, whatever it holds."""
        self.bytes_left -= sys.getsizeof(value)
        if self.bytes_left < 0:
            raise Exhausted("uses too much memory")
        if isinstance(value, str):
            self.room(len(value))
        else:
            self.weigh(value)

    def weigh(self, *values: object) -> int:
        """Characters in `values`, through all levels; one list named twice counts twice."""
        items, characters = 0, 0
        stack = list(values)
        while stack:
            value = stack.pop()
            items += 1
            if isinstance(value, str):
                characters += len(value)
            elif isinstance(value, list | tuple | dict):
                if items + len(stack) + 2 * len(value) > MAX_ITEMS:
                    raise Exhausted("makes a list that is too long")
                stack.extend(value)
                if isinstance(value, dict):
                    stack.extend(value.values())
            elif isinstance(value, int) and value.bit_length() > MAX_INTEGER:
                raise Exhausted("makes a number that is too large")
            else:
                characters += 30  # a number or a name, as text
        self.room(characters)
        self.step(items // 8)
        return characters
