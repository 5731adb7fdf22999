"""What reads the pictures of turns, as prompts need it: see `engine.vision.picture_reader`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.messages import ImagePart
from engine.vision.picture import Picture


def never() -> bool:
    """Nobody cancels."""
    return False


class PictureSource(Protocol):
    """Reads pictures for one picture encoder; used by any thread."""

    def read(self, part: ImagePart, cancelled: Callable[[], bool] = never) -> Picture:
        """A picture as the encoder takes it.

        Raises RequestError for a file that is missing or no picture, and Cancelled.
        """
        ...

    def close(self) -> None:
        """Free what it holds; it is not used again."""
        ...
