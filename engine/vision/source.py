"""What reads the pictures of turns: the interface, and where the reader of a model is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.errors import UnsupportedModel
from engine.messages import ImagePart
from engine.vision.picture import Picture
from engine.vision.projector_file import VisionConfig


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


def open_source(config: VisionConfig) -> PictureSource:
    """The reader of pictures for an encoder."""
    raise UnsupportedModel(
        f"This version cannot read picture files for an encoder of the kind {config.projector}.",
        "Leave the picture out.",
    )
