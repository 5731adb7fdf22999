"""Tooltips of untrusted texts."""

from __future__ import annotations

import html

from app.domain.visible_text import written_out

_LONGEST = 1200  # characters


def plain_tip(text: str) -> str:
    """A text as a tooltip that shows it as it is: Qt would take one with tags for HTML."""
    words = written_out(text).strip()
    cut = f"{words[:_LONGEST]}…" if len(words) > _LONGEST else words
    return f"<p>{html.escape(cut).replace(chr(10), '<br>')}</p>" if cut else ""
