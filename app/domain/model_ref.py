"""Model references: which model writes an answer, a file of this machine or one of a connection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.domain.connection import short_name


@dataclass(frozen=True, slots=True)
class Local:
    """A model file on this machine."""

    path: Path

    @property
    def file_name(self) -> str:
        """Its last part, which names it in sentences about faults."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class Remote:
    """A model of a server."""

    connection: str  # id of its connection
    id: str  # as the server lists it

    @property
    def text(self) -> str:
        """It as a setting; `remote_of` reads it."""
        return f"{self.connection} {self.id}"

    @property
    def file_name(self) -> str:
        """Its name in sentences about faults."""
        return short_name(self.id)


ModelRef = Local | Remote


def remote_of(text: str) -> Remote | None:
    """The model of a setting; None of an empty one."""
    connection, _, id = text.partition(" ")
    return Remote(connection, id) if connection and id else None


def local_path(model: ModelRef | None) -> Path | None:
    """The file of a local model; None for others."""
    return model.path if isinstance(model, Local) else None
