"""What is said of a call of a tool: its arguments in short, its state, and who allowed it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from app.domain.builtin_words import title_of
from app.domain.tool_activity import Allowed, CallState, ToolActivity
from app.domain.tool_words import indented, seconds_words
from app.domain.visible_text import on_one_line, written_out
from app.system.translation import isolated, tr
from app.ui.widgets.direction import has_right_to_left
from app.ui.widgets.units import moment

_LONGEST = 160  # characters of short arguments


def short_arguments(text: str) -> str:
    """Arguments on one line, `name: value, name: value`; those that are no JSON object as they are."""
    words = text
    found = _parsed(text)
    if isinstance(found, dict):
        values = cast("dict[str, object]", found)
        words = ", ".join(f"{name}: {_short(value)}" for name, value in values.items())
    line = on_one_line(words[: 4 * _LONGEST])
    return f"{line[:_LONGEST]}…" if len(line) > _LONGEST else line


def whole_arguments(text: str) -> str:
    """Arguments in full, on several lines."""
    found = _parsed(text)
    return written_out(text if found is None else indented(found))


def state_words(call: ToolActivity, *, is_live: bool) -> str:
    """What became of a call; `is_live`: it is waiting or running now."""
    match call.state:
        case CallState.RUNNING if is_live:
            return tr("running")
        case CallState.RUNNING:
            return tr("cut off: it may have been carried out")
        case CallState.DONE:
            return tr("done")
        case CallState.FAILED:
            return tr("failed")
        case CallState.DENIED:
            return tr("denied by you")
        case CallState.STOPPED:
            return tr("stopped")
        case CallState.REFUSED:
            return tr("refused: there is no such tool, or its arguments are wrong")


def allowed_words(allowed: Allowed) -> str:
    """By whom a call was allowed; "": by nobody."""
    match allowed:
        case Allowed.NO_EFFECT:
            return tr("no consent needed")
        case Allowed.ONCE:
            return tr("allowed by you, once")
        case Allowed.CHAT:
            return tr("allowed by you, in this chat")
        case Allowed.ALWAYS:
            return tr("allowed by you, always")
        case Allowed.NOBODY:  # its state says so
            return ""


def tool_words(call: ToolActivity, titles: Mapping[str, str]) -> str:
    """The title of the tool, by its id, and its server."""
    name = call.name if call.server else title_of(call.name) or call.name
    return with_server(titles.get(call.tool) or name, call.server)


def with_server(title: str, server: str) -> str:
    """The title of a tool, and its server if it has one."""
    return f"{apart(title)} · {apart(server)}" if server else apart(title)


def apart(text: str) -> str:
    """An untrusted text on one line, which does not reorder what is before and after it."""
    line = on_one_line(text)
    return f"\u2068{line}\u2069" if has_right_to_left(line) else isolated(line)


def facts(call: ToolActivity, *, is_live: bool, with_chat: bool = True) -> str:
    """State, time, chat, consent and seconds of a call, on one line."""
    parts = [state_words(call, is_live=is_live), moment(call.began)]
    if with_chat:
        parts.append(apart(call.title) or tr("deleted chat"))
    parts.append(allowed_words(call.allowed))
    parts.append(seconds_words(call.seconds))
    return " · ".join(filter(None, parts))


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
