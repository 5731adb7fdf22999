"""Reader of subtitles: what is said as paragraphs, each with the time at which it begins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from app.documents.decoding import load
from app.documents.html_tokens import unescaped
from app.documents.source import Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, Warned

_PAUSE = 4.0  # seconds after which a paragraph begins
_ROLLING = 0.05  # seconds between captions of which the second shows lines of the first again
_LONG = 500  # characters of a paragraph, after which it ends with a sentence
_LONGEST = 1_000  # characters after which it ends anyhow
_FRAMES = 23.976  # a second, where a file that counts frames does not say

_TIME = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})[.,:](\d{1,3})"
_ARROW = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}")
_PAIR = re.compile(rf"\s*{_TIME}\s*,\s*{_TIME}\s*$")  # of SubViewer
_FRAME_LINE = re.compile(r"[{\[](\d{1,9})[}\]][{\[](\d{0,9})[}\]](.*)")
_MARKUP = re.compile(r"<(?!v[ .])/?[a-zA-Z\d][^<>]{0,200}>|\{[\\yYfFsScCpP][^{}]{0,200}\}")
_VOICE = re.compile(r"<v(?:\.[^\s<>]{0,60})?\s+([^<>]{1,100})>")
_DRAWING = re.compile(r"\\p[1-9]")
_SENTENCE_END = (
    ".",
    "!",
    "?",
    "\u2026",
    '"',
    "\u201d",
    "\u3002",
    "\uff01",
    "\uff1f",
    "\u061f",
    "]",
)


@dataclass(frozen=True, slots=True)
class _Cue:
    begins: float  # seconds
    ends: float
    lines: tuple[str, ...]
    speaker: str = ""


def read(source: Source) -> Document:
    """The text of a file. Raises ExtractionError if it is no text."""
    decoded = load(source)
    lines = decoded.text.split("\n")
    cues = list(_cues(lines))
    warnings = [each for each in decoded.warnings if each.warning is not DocumentWarning.EMPTY]
    text = "\n\n".join(_paragraphs(cues)) if cues else decoded.text
    if not text.strip():
        warnings.append(Warned(DocumentWarning.EMPTY))
    page = Page("", text)
    return Document(DocumentKind.SUBTITLES, (page,), warnings=tuple(warnings))


def _cues(lines: list[str]) -> Iterator[_Cue]:
    if any(line.strip().lower() == "[events]" for line in lines[:2000]):
        yield from sorted(_styled(lines), key=lambda cue: cue.begins)
    elif any(_FRAME_LINE.match(line) for line in lines[:5]):
        yield from _framed(lines)
    else:
        yield from _timed(lines)


def _timed(lines: list[str]) -> Iterator[_Cue]:
    """Cues of SubRip, WebVTT and SubViewer: a line of times, then text up to an empty line."""
    at = 0
    while at < len(lines):
        found = _ARROW.match(lines[at]) or _PAIR.match(lines[at])
        at += 1
        if not found:
            continue
        begins, ends = _seconds(found.groups()[:4]), _seconds(found.groups()[4:])
        text: list[str] = []
        while at < len(lines) and lines[at].strip() and not _ARROW.match(lines[at]):
            text.append(lines[at])
            at += 1
        if at < len(lines) and lines[at].strip() and text and text[-1].strip().isdecimal():
            text.pop()  # the number of the next cue, which no empty line is before
        speaker = ""
        if text and (voice := _VOICE.search(text[0])):
            speaker = voice[1].strip()
        parts = [part for line in text for part in re.split(r"\[br\]|\|", _VOICE.sub("", line))]
        yield _Cue(begins, ends, _plain(parts), speaker)


def _styled(lines: list[str]) -> Iterator[_Cue]:
    """Cues of (Advanced) SubStation Alpha."""
    columns = ["layer", "start", "end", "style", "name", "marginl", "marginr", "marginv", "effect"]
    columns.append("text")
    for line in lines:
        kind, _, rest = line.partition(":")
        if kind.strip() == "Format" and "text" in rest.lower():
            columns = [each.strip().lower() for each in rest.split(",")]
        if kind.strip() != "Dialogue":
            continue
        row = dict(zip(columns, rest.strip().split(",", len(columns) - 1), strict=False))
        times = [re.match(rf"\s*{_TIME}", row.get(name, "")) for name in ("start", "end")]
        text = row.get("text", "")
        if times[0] and times[1] and not _DRAWING.search(text):
            parts = re.split(r"\\[Nn]", text.replace("\\h", " "))
            ends = _seconds(times[1].groups())
            yield _Cue(_seconds(times[0].groups()), ends, _plain(parts))


def _framed(lines: list[str]) -> Iterator[_Cue]:
    """Cues of MicroDVD, in frames, and of MPL2, in tenths of a second."""
    rate = _FRAMES
    for at, line in enumerate(lines):
        found = _FRAME_LINE.match(line)
        if not found:
            continue
        if at < 3 and re.fullmatch(r"\d{1,3}(?:[.,]\d{1,3})?", found[3].strip()):
            rate = float(found[3].replace(",", ".")) or rate
            continue
        scale = 10.0 if line.startswith("[") else rate
        begins = int(found[1]) / scale
        ends = int(found[2]) / scale if found[2] else begins
        yield _Cue(begins, ends, _plain(part.lstrip("/") for part in found[3].split("|")))


def _seconds(groups: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, part = (each or "0" for each in groups)
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{part}")


def _plain(lines: Iterator[str] | list[str]) -> tuple[str, ...]:
    """Lines without styles."""
    plain = (" ".join(unescaped(_MARKUP.sub("", line)).split()) for line in lines)
    return tuple(line for line in plain if line)


def _paragraphs(cues: list[_Cue]) -> Iterator[str]:
    """What is said without a pause, by one speaker as far as the file tells them apart."""
    begins, ends, length, speaker = 0.0, 0.0, 0, ""
    said: list[str] = []
    shown: tuple[str, ...] = ()  # lines of the cue before, which captions that roll show again
    for cue in cues:
        rolls = cue.begins - ends < _ROLLING
        lines = [line for line in cue.lines if not (rolls and line in shown)]
        shown = cue.lines or shown
        if not lines:
            continue
        is_end = said and said[-1].endswith(_SENTENCE_END)
        if said and (
            cue.begins - ends > _PAUSE
            or cue.speaker != speaker
            or (length > _LONG and is_end)
            or length > _LONGEST
        ):
            yield _paragraph(begins, speaker, said)
            said, length = [], 0
        if not said:
            begins, speaker = cue.begins, cue.speaker
        said.extend(lines)
        length += sum(map(len, lines))
        ends = cue.ends
    if said:
        yield _paragraph(begins, speaker, said)


def _paragraph(begins: float, speaker: str, said: list[str]) -> str:
    whole = int(begins)
    time = f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
    text = ""
    for line in said:  # a dash begins what another person says
        text += ("\n" if line.startswith(("- ", "\u2013 ", "\u2014 ")) else " ") + line
    return f"[{time}] " + (f"{speaker}: " if speaker else "") + text.strip()
