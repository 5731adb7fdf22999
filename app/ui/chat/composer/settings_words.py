"""What the parts of a chat's settings are called, and which of them are set."""

from __future__ import annotations

from collections.abc import Collection

from app.domain.chat_settings import PARTS
from app.system.translation import listed, tr


def part_name(part: str) -> str:
    """The name of a part of the settings of a chat."""
    match part:
        case "model":
            return tr("Model")
        case "instructions":
            return tr("Instructions")
        case "sampling":
            return tr("Sampling")
        case "stop":
            return tr("Stop texts")
        case "format":
            return tr("Answer format")
        case "thinking":
            return tr("Thinking")
        case "policy":
            return tr("When the chat is full")
        case "collections":
            return tr("Documents")
        case "tools":
            return tr("Tools")
        case _:
            return tr("Adapters")


def panel_words(changed: Collection[str]) -> str:
    """What the panel's button says: its key, and which parts of the shown chat are set."""
    words = tr("Chat settings (Ctrl+Shift+O)")
    if not changed:
        return words
    parts = listed(part_name(part) for part in PARTS if part in changed)
    return tr("{button}. Changed: {parts}", button=words, parts=parts)
