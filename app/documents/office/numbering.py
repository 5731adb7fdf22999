"""Labels of numbered and bulleted paragraphs, as Word counts them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from app.documents.office.ooxml import number
from app.documents.office.writing import BULLET

DEEPEST = 9  # levels
_MOST_LETTERS = 30  # of a number that is counted a to z, aa to zz, and so on
_LEVEL = re.compile(r"%([1-9])")
_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l")),
    *((40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)


@dataclass(slots=True)
class _Level:
    format: str = "decimal"
    text: str = ""
    start: int = 1


@dataclass(slots=True)
class _List:
    levels: dict[int, _Level] = field(default_factory=dict[int, _Level])
    counts: dict[int, int] = field(default_factory=dict[int, int])
    style: str = ""  # of a numbering that is defined elsewhere


def counted(value: int, form: str) -> str:
    """A number in the format of a list, such as `upperRoman`."""
    if form in ("lowerLetter", "upperLetter"):
        letters, letter = divmod(value - 1, 26)
        text = chr(97 + letter) * (letters + 1) if letters < _MOST_LETTERS else str(value)
    elif form in ("lowerRoman", "upperRoman"):
        text = ""
        for size, sign in _ROMAN if 0 < value < 4000 else ():
            text += sign * (value // size)
            value %= size
    elif form == "decimalZero":
        text = f"{value:02}"
    elif form == "none":
        text = ""
    else:
        text = str(value)
    return text.upper() if form.startswith("upper") else text


class Numbering:
    """The lists of a document, and how far each has been counted."""

    def __init__(self, root: Element | None) -> None:
        self._abstract: dict[str, _List] = {}
        self._lists: dict[str, tuple[str, dict[int, _Level]]] = {}
        self._begun: set[str] = set()
        if root is None:
            return
        for each in root.findall("w:abstractNum"):
            link = each.find("w:numStyleLink")
            levels = {number(level.get("w:ilvl")): _level(level) for level in each.findall("w:lvl")}
            style = link.get("w:val", "") if link is not None else ""
            self._abstract[each.get("w:abstractNumId", "")] = _List(levels, style=style)
        for each in root.findall("w:num"):
            base = each.find("w:abstractNumId")
            changed: dict[int, _Level] = {}
            for override in each.findall("w:lvlOverride"):
                level, start = override.find("w:lvl"), override.find("w:startOverride")
                depth = number(override.get("w:ilvl"))
                if level is not None:
                    changed[depth] = _level(level)
                if start is not None:
                    known = changed.get(depth) or _Level("", "")
                    known.start = number(start.get("w:val"), 1)
                    changed[depth] = known
            name = base.get("w:val", "") if base is not None else ""
            self._lists[each.get("w:numId", "")] = name, changed

    def linked_style(self, identity: str) -> str:
        """The style whose numbering a list uses, or ""."""
        name, _ = self._lists.get(identity, ("", {}))
        found = self._abstract.get(name)
        return found.style if found is not None and not found.levels else ""

    def label(self, identity: str, depth: int) -> str | None:
        """Counts one more paragraph of a list; its label, or None for no list."""
        name, changed = self._lists.get(identity, ("", {}))
        found = self._abstract.get(name)
        if found is None or not 0 <= depth < DEEPEST:
            return None
        if identity not in self._begun:
            self._begun.add(identity)
            for level, each in changed.items():
                found.counts[level] = each.start - 1

        def level_at(at: int) -> _Level:
            base, other = found.levels.get(at, _Level()), changed.get(at)
            if other is None:
                return base
            return other if other.format else _Level(base.format, base.text, other.start)

        def value_at(at: int) -> int:
            return found.counts.setdefault(at, level_at(at).start)

        here = level_at(depth)
        found.counts[depth] = found.counts.get(depth, here.start - 1) + 1
        for deeper in [at for at in found.counts if at > depth]:
            del found.counts[deeper]
        if here.format == "bullet":
            return BULLET
        form = here.format
        return _LEVEL.sub(
            lambda match: counted(
                value_at(int(match[1]) - 1),
                form if int(match[1]) - 1 == depth else level_at(int(match[1]) - 1).format,
            ),
            here.text,
        ).strip()


def _level(element: Element) -> _Level:
    def value(name: str, default: str) -> str:
        found = element.find(name)
        return found.get("w:val", default) if found is not None else default

    form = element.find("w:numFmt")
    if form is None and (choice := element.find("mc:AlternateContent")) is not None:
        form = next(choice.iter("w:numFmt"), None)
    return _Level(
        form.get("w:val", "decimal") if form is not None else "decimal",
        value("w:lvlText", ""),
        number(value("w:start", "1"), 1),
    )
