"""Finds the boxes and points in the text of an answer, in the notations of today's models.

JSON, which may be cut off, in single quotes or among other text, with the keys that models were
trained on; tags such as `<box>`, `<point>` and `<loc0123>`; lists of four numbers where there is
nothing else. Any text is read without an error, and its cost grows with its length only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from app.domain.marks import Grid, WrittenMark

MOST_MARKS = 500
MOST_CHARACTERS = 200_000  # of a text that are read
_MOST_LABEL = 120  # characters
_MOST_BEFORE = 60  # characters that are the label of a list
_MOST_DEPTH = 64  # of JSON
_LEAST_SIDE = 4  # of boxes without a notation, which are numbers of other things more often

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBERS = re.compile(_NUMBER)
_IS_NUMBER = re.compile(rf"\s*{_NUMBER}\s*")
_NOT_IN_KEY = re.compile("[^a-z0-9]")
# Where nothing of these is, there is no mark.
_MAY_BE = re.compile(r"<\W?(?:loc\d|box|bbox|points?\b|det)|\d\s*[,)]\s*[(\d.+-]|\bx\d?\b", re.I)
_TOKEN = re.compile(
    r"""[{}\[\],:] | "((?:[^"\\\n]|\\.)*)" | '((?:[^'\\\n]|\\.){0,200})'(?=\s*[,:}\]]) |"""
    r""" [^\s{}\[\],:"']+ | ["']""",
    re.VERBOSE,
)
_LOC = re.compile(r"((?:<loc\d{1,4}>\s*){4})([^<;\n]*)")
_TAGGED = re.compile(
    r"(?:<\|?(?:object_)?ref(?:_start)?\|?>([^<]{0,200})<\|?/?(?:object_)?ref(?:_end)?\|?>\s*)?"
    r"<\|?(b?box|point|det)(?:_start)?\|?>([^<]{0,4000}?)(?:<\|?/?(?:b?box|point|det)(?:_end)?\|?>)"
)
_MOLMO = re.compile(r"<points?\s([^<>]{0,20000})>")
_ATTRIBUTE = re.compile(r"""\b([xy]\d*|alt)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_GLM = re.compile(r"<\|(?:begin|end)_of_box\|>")
_FENCE = re.compile(r"```(\w*)[^\n]*\n.*?(?:```|\Z)", re.DOTALL)
_FOUR = rf"{_NUMBER}(?:\s*,\s*{_NUMBER}){{3}}"
_PLAIN = re.compile(
    rf"\[\s*({_FOUR})\s*\]|\(\s*({_NUMBER}\s*,\s*{_NUMBER})\s*\)\s*,\s*"
    rf"\(\s*({_NUMBER}\s*,\s*{_NUMBER})\s*\)"
)
_LINE_ENDS = re.compile(r"[\n\[\](){}]|\d,")  # what ends the words before a list

_BOX_KEYS = (
    *("bbox2d", "bbox", "bboxes", "bboxes2d", "box2d", "box", "boxes"),
    *("boundingbox", "boundingboxes"),
)
_POINT_KEYS = ("point2d", "point", "points", "points2d", "keypoint", "keypoints", "click", "center")
_EITHER_KEYS = ("coordinates", "coordinate", "coords", "position", "location")
_LABEL_KEYS = ("label", "labels", "name", "text", "textcontent", "object", "class", "category",
               "description", "caption", "title", "type")  # fmt: skip
_IMAGE_KEYS = ("imageindex", "imageid", "imagenumber", "image", "picture")
_CORNERS = (
    ("x1", "y1", "x2", "y2"),
    ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "right", "bottom"),
)


def find_marks(text: str) -> tuple[WrittenMark, ...]:
    """The boxes and points of a text in their order by notation, `MOST_MARKS` at most."""
    text = text[:MOST_CHARACTERS]
    if not _MAY_BE.search(text):
        return ()
    text = _GLM.sub(" ", text)
    found: list[WrittenMark] = []
    for pattern, read in ((_LOC, _of_locations), (_TAGGED, _of_tag), (_MOLMO, _of_attributes)):
        for match in pattern.finditer(text):
            found += read(match)
            if len(found) >= MOST_MARKS:
                return tuple(found[:MOST_MARKS])
        text = pattern.sub(" ", text)
    for each in _Reader().read(text):
        found.append(each)
        if len(found) >= MOST_MARKS:
            return tuple(found)
    return tuple(found) or tuple(_of_plain_lists(text))


# --- tags ---------------------------------------------------------------------------------------


def _of_locations(match: re.Match[str]) -> Iterator[WrittenMark]:
    """PaliGemma: y, x, y, x of 1024 steps, and the label behind them."""
    values = tuple(1000 * int(each) / 1024 for each in re.findall(r"\d+", match[1]))
    yield WrittenMark(values, _label(match[2]), None, Grid.THOUSAND, y_first=True)


def _of_tag(match: re.Match[str]) -> Iterator[WrittenMark]:
    """InternVL, Qwen-VL, Qwen2-VL and others: boxes and points of 1000 steps, x first."""
    values = _numbers(match[3])
    step = 2 if match[2] == "point" and len(values) % 4 else 4
    for each in _groups(values, step):
        yield WrittenMark(each, _label(match[1] or ""), None, Grid.THOUSAND, y_first=False)


def _of_attributes(match: re.Match[str]) -> Iterator[WrittenMark]:
    """Molmo: a point, or points with numbered attributes, in per cent."""
    given = {each[1]: each[2] or each[3] or "" for each in _ATTRIBUTE.finditer(match[1])}
    label = _label(given.get("alt", ""))
    for name, x in given.items():
        values = _numbers(f"{x} {given.get('y' + name[1:], '')}") if name[0] == "x" else []
        if len(values) == 2 and _is_usable(values):
            yield WrittenMark(tuple(values), label, None, Grid.PERCENT, y_first=False)


def _of_plain_lists(text: str) -> Iterator[WrittenMark]:
    """Lists of four numbers, and pairs of points, of which the tags are not shown."""
    text = _FENCE.sub(lambda fence: fence[0] if fence[1] in ("", "json") else " ", text)
    for count, match in enumerate(_PLAIN.finditer(text)):
        if count >= MOST_MARKS:
            return
        values = _numbers(match[1] or f"{match[2]} {match[3]}")
        if len(values) != 4 or not _is_usable(values) or min(values) < 0:
            continue
        wide, high = abs(values[2] - values[0]), abs(values[3] - values[1])
        if min(wide, high) >= _LEAST_SIDE or (max(values) <= 1 and min(wide, high) > 0):
            before = text[max(match.start() - _MOST_BEFORE, 0) : match.start()].rstrip("[( ")
            yield WrittenMark(tuple(values), _label(_LINE_ENDS.split(before)[-1]))


# --- JSON ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    """An object or a list that is being read."""

    is_object: bool
    key: str = ""
    values: dict[str, object] = field(default_factory=dict[str, object])
    items: list[object] = field(default_factory=list[object])

    def add(self, value: object) -> None:
        if not self.is_object:
            self.items.append(value)
        elif self.key:
            self.values.setdefault(self.key, value)
            self.key = ""
        elif isinstance(value, str):
            self.key = _NOT_IN_KEY.sub("", value.lower())


class _Reader:
    """Reads JSON as far as there is any; what is between it counts as text of a list."""

    def __init__(self) -> None:
        self._open: list[_Open] = []

    def read(self, text: str) -> Iterator[WrittenMark]:
        """The marks of all objects, each when it ends, those that are cut off at the end."""
        at = 0
        while at < len(text):
            if not self._open:  # prose
                starts = [each for each in (text.find("{", at), text.find("[", at)) if each >= 0]
                if not starts:
                    return
                at = min(starts)
            match = _TOKEN.search(text, at)
            if match is None:
                break
            at = match.end()
            yield from self._take(match)
        while self._open:
            yield from self._end(is_whole=False)

    def _take(self, match: re.Match[str]) -> Iterator[WrittenMark]:
        token = match[0]
        if token in "{[":
            if len(self._open) >= _MOST_DEPTH:
                self._open.clear()
            self._open.append(_Open(token == "{"))
        elif token in "}]":
            if self._open[-1].is_object == (token == "}"):
                yield from self._end(is_whole=True)
            elif any(each.is_object == (token == "}") for each in self._open):
                while self._open[-1].is_object != (token == "}"):
                    yield from self._end(is_whole=False)
                yield from self._end(is_whole=True)
        elif token not in ",:":
            string = match[1] if match[1] is not None else match[2]
            self._open[-1].add(_number(token) if string is None else _unescaped(string))

    def _end(self, *, is_whole: bool) -> Iterator[WrittenMark]:
        """End the innermost object or list."""
        ended = self._open.pop()
        above = self._open[-1] if self._open else None
        if not ended.is_object:
            is_cut = not is_whole and any(isinstance(each, float) for each in ended.items)
            if above is not None and not is_cut:
                above.add(ended.items)
            return
        corners = _corners(ended.values)
        if corners is not None and above is not None and above.is_object and _is_key(above.key):
            above.add(corners)
            return
        yield from _of_object(ended.values, corners)
        if above is not None:
            above.add(None)


def _is_key(key: str) -> bool:
    return key in _BOX_KEYS or key in _POINT_KEYS or key in _EITHER_KEYS


def _corners(values: dict[str, object]) -> list[object] | None:
    """The corners that an object names, or its point."""
    for names in (*_CORNERS, ("x", "y")):
        if all(isinstance(_value(values.get(name)), float) for name in names):
            return [_value(values[name]) for name in names]
    return None


def _of_object(values: dict[str, object], corners: list[object] | None) -> Iterator[WrittenMark]:
    label = next((text for key in _LABEL_KEYS if (text := _text(values.get(key)))), "")
    image = next(
        (each for key in _IMAGE_KEYS if (each := _whole(values.get(key))) is not None), None
    )
    if corners is not None and not any(map(_is_key, values)):
        yield from _marks(corners, 0, label, image, y_first=False)
        return
    for key, value in values.items():
        if not _is_key(key):
            continue
        step = 4 if key in _BOX_KEYS else 2 if key in _POINT_KEYS else 0
        if key == "box2d":  # Gemma and Gemini
            yield from _marks(value, step, label, image, y_first=True, thousand=True)
        else:
            x_first = key.endswith("2d") or value is corners
            yield from _marks(value, step, label, image, y_first=False if x_first else None)


def _marks(
    value: object,
    step: int,
    label: str,
    image: int | None,
    *,
    y_first: bool | None,
    thousand: bool = False,
) -> Iterator[WrittenMark]:
    """The marks of a value: numbers, lists of numbers, or a text with numbers.

    `step` is 4 for boxes, 2 for points, 0 where their number decides.
    """
    pairs, values = _flat(value)
    if step == 4 and pairs > 2:  # a polygon: the box around it
        xs, ys = values[::2], values[1::2]
        values = [min(xs), min(ys), max(xs), max(ys)] if _is_usable(values) else []
    is_flat = len(_items(value)) == len(values)
    if not step or (step == 2 and is_flat and len(values) == 4):
        step = 2 if len(values) == 2 or pairs else 4
    for each in _groups(values, step):
        grid = Grid.THOUSAND if thousand and 1 < max(each) <= 1020 else None
        yield WrittenMark(each, label, image, grid, y_first)


def _flat(value: object) -> tuple[int, list[float]]:
    """How many of the lists in a value are pairs of numbers, and all its numbers."""
    values = _numbers(value) if isinstance(value, str) else []
    pairs = 0
    for each in _items(value):
        if isinstance(number := _value(each), float):
            values.append(number)
        elif not isinstance(each, str):
            more, inner = _flat(each)
            pairs += more or int(len(inner) == 2)
            values += inner
    return pairs, values


def _items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


# --- values -------------------------------------------------------------------------------------


def _number(token: str) -> object:
    """The number of a word, or the word; NaN and what is too large stay numbers."""
    if _IS_NUMBER.fullmatch(token) or token in ("NaN", "Infinity", "-Infinity"):
        return float(token)
    return token


def _value(value: object) -> object:
    """A number that is written as a text, or the value."""
    is_text = isinstance(value, str) and _IS_NUMBER.fullmatch(value) is not None
    return float(str(value)) if is_text else value


def _numbers(text: str) -> list[float]:
    return [float(each) for each in _NUMBERS.findall(text)]


def _groups(values: Iterable[float], size: int) -> Iterator[tuple[float, ...]]:
    """Values by so many, without those that are no coordinates; none if there is a rest."""
    values = tuple(values)
    if len(values) % size:
        return
    for at in range(0, len(values), size):
        if _is_usable(group := values[at : at + size]):
            yield group


def _is_usable(values: Iterable[float]) -> bool:
    return all(math.isfinite(each) and abs(each) < 1e9 for each in values)


def _whole(value: object) -> int | None:
    """The number of a picture: 2, "2", "image 2"."""
    if isinstance(value, str):
        digits = re.search(r"\d{1,4}\Z", value.strip())
        return int(digits[0]) if digits else None
    is_whole = isinstance(value, float) and value.is_integer() and 0 <= value < 10_000
    return int(value) if is_whole and isinstance(value, float) else None


def _text(value: object) -> str:
    if isinstance(value, str):
        return _label(value)
    return _label(next((each for each in _items(value) if isinstance(each, str)), ""))


def _label(text: str) -> str:
    """A label in one line."""
    words = " ".join(text.split()).strip(" \"'*_`:;,.-\u2013\u2014\u2022")
    return words[:_MOST_LABEL]


def _unescaped(text: str) -> str:
    """A text without the escapes of JSON; one that is wrong is left as it is."""
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return {"n": "\n", "t": "\t", "r": "\r", "b": "", "f": ""}.get(code, code)

    whole = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text)
    return whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
