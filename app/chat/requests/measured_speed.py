"""Measured speed: how fast a model has read and written in its last answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.domain.answer_details import AnswerRecord

ANSWERS = 64  # of all models, that are looked at


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens/s; 0: not known."""

    reading: float = 0.0
    writing: float = 0.0

    def seconds(self, read: int, written: int) -> float:
        """Of so many tokens; 0: not known."""
        if not (self.reading and self.writing):
            return 0.0
        return read / self.reading + written / self.writing


def speed_of(model: str, records: Iterable[AnswerRecord]) -> Speed:
    """The speed of the model with this displayed name, by the answers that it has written."""
    read = read_seconds = written = written_seconds = 0.0
    for record in records:
        made = record.details
        if made.model == model and made.prompt_seconds > 0 and made.decode_seconds > 0:
            read += record.prompt_tokens - made.reused_tokens
            read_seconds += made.prompt_seconds
            written += record.generated_tokens
            written_seconds += made.decode_seconds
    if not (read_seconds and written_seconds):
        return Speed()
    return Speed(read / read_seconds, written / written_seconds)
