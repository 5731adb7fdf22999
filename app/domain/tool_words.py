"""Words for calls of tools: what a call was given in short, what became of it, and its whole text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TypeVar, cast

from app.domain.parts import CallEnd, Part, ToolCallPart, ToolResultPart
from app.domain.tool_activity import Allowed
from app.domain.tool_rounds import answers
from app.domain.visible_text import escaped, on_one_line, written_out
from app.system.translation import number, sentences, tr

_SHORT = 120  # characters of short arguments
_LINE = 160  # characters of a value in a list
_MOST_GROWTH = 4  # times its text, by indents
_PARSED = 512  # texts whose arguments are kept
_LONG, _PARSED_LONG = 4_096, 8  # characters of a long one, and how many of these are kept
T = TypeVar("T")


def with_results_at_calls(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts of a message, each result of a tool directly behind its call."""
    parts = tuple(parts)
    left = [part for part in parts if isinstance(part, ToolResultPart)]
    placed = set[int]()
    for part in parts:
        if isinstance(part, ToolResultPart):
            if id(part) not in placed:
                yield part
            continue
        yield part
        if isinstance(part, ToolCallPart):
            found = next((r for r in left if id(r) not in placed and answers(r, part)), None)
            if found is not None:
                placed.add(id(found))
                yield found


def _kept(make: Callable[[str], T]) -> Callable[[str], T]:
    """Keep what is made of texts; of few long ones: each piece of one being written makes another."""
    short, long = lru_cache(_PARSED)(make), lru_cache(_PARSED_LONG)(make)
    return lambda text: short(text) if len(text) <= _LONG else long(text)


@_kept
def read_arguments(arguments: str) -> object:
    """The value of JSON text; None if it is none (yet)."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return None


@_kept
def short_arguments(arguments: str) -> str:
    """Arguments in a few words on one line: the only text, or each value with its name."""
    value = read_arguments(arguments)
    if not isinstance(value, dict):
        return on_one_line(arguments[-_SHORT:] if len(arguments) > _SHORT else arguments)
    named = cast("dict[str, object]", value)
    if len(named) == 1 and isinstance(only := next(iter(named.values())), str):
        return on_one_line(only[:_SHORT])
    pieces = (f"{name}: {_plain(each)[:_SHORT]}" for name, each in named.items())
    return on_one_line(", ".join(pieces)[:_SHORT])


def argument_list(arguments: str) -> tuple[tuple[str, str], ...] | None:
    """Names and values of arguments that are read as a list; None: they are not flat.

    A value of several lines, or a long one, is among them: it is shown as a text of its own.
    """
    value = read_arguments(arguments)
    if not isinstance(value, dict):
        return None
    named = cast("dict[str, object]", value)
    if any(isinstance(each, dict | list) for each in named.values()):
        return None
    return tuple((on_one_line(name), escaped(_plain(each))) for name, each in named.items())


def is_short(value: str) -> bool:
    """Whether a value has a place in a list."""
    return "\n" not in value and len(value) <= _LINE


def pretty_json(text: str) -> str:
    """JSON on several lines; nothing for an empty object, and another text as it is."""
    try:
        value: object = json.loads(text)
        return indented(value) if value else ""
    except (ValueError, RecursionError):
        return text.strip()


def indented(value: object) -> str:
    """JSON on several lines; on one where its indents would be most of it.

    A list within 900 others is 20 MB from 24 KB.
    """
    flat = json.dumps(value, ensure_ascii=False)
    made, room = list[str](), _MOST_GROWTH * len(flat) + 1_000
    try:
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
            made.append(piece)
            room -= len(piece)
            if room < 0:
                return flat
    except RecursionError:
        return flat
    return "".join(made)


def result_and_language(text: str) -> tuple[str, str]:
    """A result as it is shown, and "json" where it is that."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return written_out(indented(json.loads(text))), "json"
        except (ValueError, RecursionError):
            return written_out(text), ""
    return written_out(text), ""


def seconds_words(seconds: float, *, whole: bool = False) -> str:
    """How long a call took: `0.3 s`, `12 s`, `2 min 5 s`; "" where it is not known.

    `whole` seconds are counted: `4 s`, and "" before the first one has passed.
    """
    if whole:
        seconds = float(int(seconds))
    if seconds <= 0:
        return ""
    if seconds < 9.95 and not whole:
        return tr("{count} s", count=number(max(seconds, 0.1), 1))
    if seconds < 99.5:
        return tr("{count} s", count=number(round(seconds)))
    minutes, rest = divmod(round(seconds), 60)
    return tr("{minutes} min {seconds} s", minutes=minutes, seconds=rest)


def end_word(result: ToolResultPart) -> str:
    """What became of a call, in a word."""
    words = {
        CallEnd.DENIED.value: tr("denied"),
        CallEnd.STOPPED.value: tr("stopped"),
        CallEnd.REFUSED.value: tr("refused"),
    }
    return words.get(result.end) or (tr("failed") if result.failed else tr("done"))


def result_words(result: ToolResultPart) -> str:
    """What became of a call, in a word, with the time that it took."""
    took = seconds_words(result.seconds)
    word = end_word(result)
    return tr("{words} · {more}", words=word, more=took) if took else word


def end_sentence(result: ToolResultPart) -> str:
    """What became of a call, in a sentence."""
    took = seconds_words(result.seconds)
    match result.end:
        case CallEnd.DENIED:
            return tr("You did not allow this call, and the model was told so.")
        case CallEnd.STOPPED:
            return tr("You stopped this call, and the model was told so.")
        case CallEnd.REFUSED:
            return tr("It was not carried out; the result says why.")
        case _:
            pass
    if result.failed:
        return tr("It failed after {time}.", time=took) if took else tr("It failed.")
    return tr("It was done in {time}.", time=took) if took else tr("It was done.")


def cut_sentence(result: ToolResultPart) -> str:
    """That a result was longer than what the model reads; "": it was not."""
    if not result.characters or result.characters <= len(result.text):
        return ""
    shown, all_ = len(result.text), result.characters
    cut = tr("The model reads the first {shown} of {all} characters.", shown=shown, all=all_)
    return sentences(cut, tr("The whole result is kept in a file.") if result.sha256 else "")


def allowed_sentence(allowed: Allowed | None) -> str:
    """Who allowed a call; "": it is not known, or nobody did."""
    match allowed:
        case Allowed.NO_EFFECT:
            return tr("It needed no permission.")
        case Allowed.ONCE:
            return tr("You allowed it once.")
        case Allowed.CHAT:
            return tr("You allowed it in this chat.")
        case Allowed.ALWAYS:
            return tr("You allowed it always.")
        case _:
            return ""


def call_text(call: ToolCallPart | None, result: ToolResultPart | None) -> str:
    """A call to copy: its name, arguments and result, as they are."""
    name = call.name if call else result.name if result else ""
    arguments = pretty_json(call.arguments) if call else ""
    return "\n\n".join(filter(None, (name, arguments, result.text if result else "")))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
