"""Lines of a column as paragraphs: joined, with the hyphens at line ends undone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from app.documents.pdf.geometry import Fragment, Word, direction, fragments

_LABEL = re.compile(
    r"([•‣▪◦●○■□▶➢✓*·\u2013\u2014-]|\(?\d{1,3}[.)]|\(?[A-Za-z][.)]|\([ivxlc]{1,5}\)|\[\d{1,3}\])(\s|$)"
)
_DOTS = re.compile(r"\s*\.(\s?\.){4,}\s*")  # up to a page's number
_LEADER = re.compile(r"\.\s?\.\s?\.\s*\d+$")
_NAMED = re.compile(r"[^.,;:]{1,40}:(\s|$)")  # a name before its value
_ENDS_OF_LINE = "-\x02\u00ad\u2010"  # hyphens
_CLOSED = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")  # without spaces


def lines_of(items: Sequence[Fragment]) -> list[Fragment]:
    """The lines of fragments of one column, from its top on; a table is a line."""
    made: list[Fragment] = []
    for item in sorted(items, key=lambda item: (item.middle, item.x0)):
        last = made[-1] if made else None
        if (
            last is None
            or last.rows is not None
            or item.rows is not None
            or item.middle - last.middle > 0.4 * _line_height(last, item)
        ):
            made.append(Fragment(item.x0, item.y0, item.x1, item.y1, list(item.words), item.rows))
            continue
        last.words.extend(item.words)
        last.x0, last.x1 = min(last.x0, item.x0), max(last.x1, item.x1)
        if item.height > last.height:
            last.y0, last.y1 = item.y0, item.y1
    return made


def _line_height(some: Fragment, other: Fragment) -> float:
    low, high = sorted((some.height, other.height))
    return min(high, 1.5 * low)


def cell_lines(words: list[Word]) -> list[Fragment]:
    """The lines within a cell of a table."""
    return lines_of(fragments(words)) if words else []


def joined(lines: Iterable[str]) -> str:
    """Lines as one: hyphens at their ends are undone where the word goes on in lower case."""
    made = ""
    for line in lines:
        if not made:
            made = line
        elif made[-1] in _ENDS_OF_LINE and len(made) > 1 and made[-2].isalnum():
            is_compound = "-" in made[:-1].rpartition(" ")[2]  # such as state-of-the-art
            if line[:1].islower() and made[-2].isalpha() and not is_compound:
                made = made[:-1] + line
            else:
                made = made[:-1].rstrip("\u00ad") + "-" + line
        elif line and _CLOSED.match(made[-1]) and _CLOSED.match(line):
            made += line
        else:
            made = f"{made} {line}"
    return _DOTS.sub(" ... ", made.replace("\x02", "-").replace("\u00ad", ""))


def paragraphs(lines: Sequence[Fragment]) -> list[str]:
    """The paragraphs of a column's lines; lines that were broken on purpose stay lines."""
    made: list[str] = []
    left = min((line.x0 for line in lines), default=0.0)
    for stack in _stacks(lines):
        made.extend(_within(stack, left))
    return made


def _stacks(lines: Sequence[Fragment]) -> list[list[Fragment]]:
    """Lines that follow each other closely and look the same."""
    steps = [after.middle - line.middle for line, after in pairwise(lines)]
    usual = median([step for step in steps if step > 0] or [0.0])
    made: list[list[Fragment]] = []
    for line, step in zip(lines, [0.0, *steps], strict=False):
        if not made:
            made.append([line])
            continue
        last = made[-1][-1]
        high = max(line.height, last.height)
        near = min(max(1.3 * usual, 1.15 * high), 2.2 * high)
        if len(made[-1]) > 1:  # as close as the lines before
            near = min(near, 1.25 * (last.middle - made[-1][-2].middle) + 0.5)
        alike = min(line.height, last.height) > 0.87 * high
        if step > near or not alike or _LABEL.match(line.words[0].text + " "):
            made.append([line])
        else:
            made[-1].append(line)
    return made


def _within(stack: list[Fragment], edge: float) -> list[str]:
    """The paragraphs of a stack: parted by indents, and by lines that are short on purpose.

    `edge` is the left edge of the column.
    """
    texts = [line.text for line in stack]
    from_right = sum(map(direction, texts)) < 0
    spans = [(-line.x1, -line.x0) if from_right else (line.x0, line.x1) for line in stack]
    left, right = min(start for start, _ in spans), max(end for _, end in spans)
    short = [False]  # whether the line before could have taken this line's first word
    indented = [False]
    for i in range(1, len(stack)):
        high = stack[i].height
        near = [end for _, end in spans[max(0, i - 2) : i + 1]]
        flush = len(near) == 3 and max(near) - min(near) < 2 * high  # perhaps beside a picture
        room = (max(near) if flush else right) - spans[i - 1][1]
        word = (max if from_right else min)(stack[i].words, key=lambda word: word.x0)
        short.append(
            bool(_LEADER.search(texts[i - 1]))
            or bool(_NAMED.match(texts[i - 1]) and _NAMED.match(texts[i]))
            or (room > word.x1 - word.x0 + 0.5 * high and texts[i - 1][-1] not in _ENDS_OF_LINE)
        )
        indent = spans[i][0] - left
        hangs = i + 1 < len(stack) and spans[i + 1][0] - left >= indent - 0.3 * high
        indented.append(indent > 0.7 * high and spans[i - 1][0] - left < 0.3 * high and not hangs)
    is_centred = _is_centred(spans, left, right)
    each_alone = is_centred or 2 * sum(short) >= len(stack) - 1 > 0  # such as an address
    if each_alone and not from_right and not is_centred:  # perhaps code
        wide = sum(end - start for start, end in spans) / max(1, sum(map(len, texts)))
        indents = [min(round((start - edge) / max(wide, 1.0)), 60) for start, _ in spans]
        if max(indents) - min(indents) > 1:
            lines = zip(indents, texts, strict=True)
            return ["\n".join(" " * indent + joined([text]) for indent, text in lines)]
    parts: list[list[list[str]]] = []
    for i, text in enumerate(texts):
        if not i or indented[i]:
            parts.append([[text]])
        elif short[i] or (each_alone and texts[i - 1][-1] not in _ENDS_OF_LINE):
            parts[-1].append([text])
        else:
            parts[-1][-1].append(text)
    return ["\n".join(joined(lines) for lines in part) for part in parts]


def _is_centred(spans: list[tuple[float, float]], left: float, right: float) -> bool:
    return max(start for start, _ in spans) > left + 3.0 and all(
        abs((start - left) - (right - end)) < 4.0 for start, end in spans
    )
