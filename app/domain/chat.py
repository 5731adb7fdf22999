"""A chat as a row of the list, a deleted chat, and a search result."""

from __future__ import annotations

from dataclasses import dataclass

from engine import ContextPolicy


@dataclass(frozen=True, slots=True)
class Conversation:
    """One row of the list of conversations."""

    id: int
    title: str
    created: float  # seconds since 1970
    updated: float  # seconds since 1970, of the last message started or ended
    leaf: int | None  # last message of the shown branch
    policy: ContextPolicy = ContextPolicy.DROP_OLDEST  # when it outgrows the model's context


KEEP_DELETED_SECONDS = 30 * 24 * 3600  # how long deleted conversations can be restored


@dataclass(frozen=True, slots=True)
class TrashedConversation:
    """A deleted conversation."""

    id: int
    title: str
    deleted: float  # seconds since 1970


@dataclass(frozen=True, slots=True)
class Hit:
    """The best message of a conversation that was found; one found by its title has none."""

    message: int
    snippet: str
