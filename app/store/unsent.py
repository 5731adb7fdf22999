"""Unsent text of a chat, as the text column of the table `draft`.

A single text is stored as it is; anything else as JSON, with the rows of the parts.
"""

from __future__ import annotations

import json
from typing import Any

from app.domain.parts import Parts, TextPart
from app.domain.unsent import Unsent
from app.store.part_rows import from_row, to_row

_BEGIN = '{"unsent": '


def unsent_text(unsent: Unsent) -> str:
    """The stored text; empty if there is nothing unsent."""
    match unsent:
        case Unsent((), ()):
            return ""
        case Unsent((TextPart(text),), ()) if not text.startswith(_BEGIN):
            return text
        case _:
            rows = [[to_row(part) for part in parts] for parts in (unsent.field, *unsent.waiting)]
            return json.dumps({"unsent": rows}, ensure_ascii=False)


def unsent_of(text: str) -> Unsent:
    """What was stored; text that is not of this form is text of the user."""
    if text.startswith(_BEGIN):
        try:
            field, *waiting = (_parts(rows) for rows in json.loads(text)["unsent"])
            return Unsent(field, tuple(waiting))
        except (ValueError, KeyError, TypeError, RecursionError):
            pass  # damaged: the user sees what is left of it
    return Unsent((TextPart(text),) if text else ())


def _parts(rows: Any) -> Parts:
    return tuple(from_row(str(kind), str(data), str(text)) for kind, data, text in rows)
