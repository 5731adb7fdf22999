"""OpenDocument files, zipped or as one XML file, and the text in them as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from app.documents.office.mathml import mathml_text
from app.documents.office.numbering import counted
from app.documents.office.ooxml import number
from app.documents.office.writing import BULLET, Blocks, link
from app.documents.readers.package import CHUNK, Package, damaged, resolved, xml_elements
from app.documents.source import ExtractionError, ExtractionFault, Source
from app.documents.tables import MOST_COLUMNS
from app.domain.documents import DocumentWarning, Warned

MOST_CELLS = 200_000  # of a table
MOST_REPEATED = 1_000  # rows or cells that are the same
DEEPEST_STYLE = 20
_SPACES = re.compile(r"[ \t\r\n]+")
_FORMATS = {
    "1": "decimal",
    "a": "lowerLetter",
    "A": "upperLetter",
    "i": "lowerRoman",
    "I": "upperRoman",
}
_LEFT_OUT = frozenset(
    (
        *(
            "office:annotation",
            "office:annotation-end",
            "text:tracked-changes",
            "text:note-citation",
        ),
        *("office:forms", "text:ruby-text", "svg:title", "svg:desc", "text:sequence-decls"),
        *("office:event-listeners", "text:alphabetical-index-mark", "text:hidden-paragraph"),
    )
)


class OpenFile:
    """An OpenDocument file whose parts are read as elements."""

    def __init__(self, source: Source, package: Package | None) -> None:
        self._source = source
        self._package = package
        self._is_damaged = False

    def elements(self, part: str, *wanted: str, opened: str = "") -> Iterator[Element]:
        """The wanted elements of a part; all parts of a file that is not zipped are that file."""
        if self._package is not None:
            name = f"{part}.xml"
            if part == "content" and name not in self._package:
                raise damaged("the package has no content.xml")
            return self._package.elements(name, *wanted, opened=opened)
        return self._of_file(*wanted, opened=opened)

    def _of_file(self, *wanted: str, opened: str) -> Iterator[Element]:
        found = 0
        name = self._source.path.name
        try:
            for element in xml_elements(self._chunks(), *wanted, opened=opened, name=name):
                found += 1
                yield element
        except ExtractionError as error:
            if not found or error.fault is not ExtractionFault.DAMAGED:
                raise
            self._is_damaged = True

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """What the user should know of what was read so far."""
        if self._package is not None:
            return self._package.warnings
        return (Warned(DocumentWarning.DAMAGED),) if self._is_damaged else ()

    def object(self, address: str) -> Element | None:
        """The content of an object that is embedded in a zipped file."""
        name = resolved("", address) + "/content.xml"
        return self._package.part(name) if self._package is not None else None

    def styles(self) -> Styles:
        """The common styles; those of a file that is not zipped come before its content."""
        made = Styles()
        if self._package is not None:
            for element in self.elements("styles", *STYLES, "office:master-styles"):
                made.add(element)
        return made

    def title(self) -> str:
        for element in self.elements("meta", "office:meta"):
            return (element.findtext("dc:title") or "").strip()
        return ""

    def _chunks(self) -> Iterator[bytes]:
        with self._source.open() as file:
            while piece := file.read(CHUNK):
                yield piece


@contextmanager
def opened(source: Source) -> Generator[OpenFile]:
    """An OpenDocument file; raises ExtractionError, also for one that is encrypted."""
    if source.head.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n").startswith(b"<"):
        yield OpenFile(source, None)
        return
    with Package(source) as package:
        manifest = package.part("META-INF/manifest.xml")
        if (
            manifest is not None
            and next(manifest.iter("manifest:encryption-data"), None) is not None
        ):
            raise ExtractionError(ExtractionFault.PROTECTED, "the package is encrypted")
        yield OpenFile(source, package)


@dataclass(slots=True)
class _Level:
    """A level of a list: its number's format ("" is a bullet), and what is around the number."""

    format: str
    prefix: str = ""
    suffix: str = ""
    start: int = 1
    shown: int = 1  # how many levels a number shows


@dataclass(slots=True)
class _Style:
    parent: str
    properties: dict[str, str] = field(default_factory=dict[str, str])


STYLES = ("style:style", "text:list-style", "text:outline-style")


class Styles:
    """What styles say that matters for the text: levels of lists, and what is hidden."""

    def __init__(self) -> None:
        self.lists: dict[str, dict[int, _Level]] = {}
        self.outline: dict[int, _Level] = {}
        self._styles: dict[str, _Style] = {}

    def add(self, element: Element) -> None:
        """Adds an element of `STYLES`; others are left out."""
        name = element.get("style:name", "")
        if element.tag == "text:list-style":
            self.lists[name] = _levels(element)
        elif element.tag == "text:outline-style":
            self.outline = _levels(element)
        elif element.tag == "style:style":
            found = _Style(element.get("style:parent-style-name", ""))
            for properties in element:
                found.properties.update(properties.attrib)
            found.properties.update(element.attrib)
            self._styles[name] = found

    def value(self, name: str, key: str) -> str:
        """A property of a style or of those that it is based on; "" without one."""
        for _ in range(DEEPEST_STYLE):
            found = self._styles.get(name)
            if found is None:
                break
            if key in found.properties:
                return found.properties[key]
            name = found.parent
        return ""


def _levels(element: Element) -> dict[int, _Level]:
    made: dict[int, _Level] = {}
    for each in element:
        is_number = each.tag in ("text:list-level-style-number", "text:outline-level-style")
        made[number(each.get("text:level"), 1)] = _Level(
            _FORMATS.get(each.get("style:num-format", ""), "none") if is_number else "",
            each.get("style:num-prefix", ""),
            each.get("style:num-suffix", ""),
            number(each.get("text:start-value"), 1),
            number(each.get("text:display-levels"), 1),
        )
    return made


@dataclass(slots=True)
class _Line:
    """The text of a paragraph as it is collected, and what follows it."""

    pieces: list[str] = field(default_factory=list[str])
    after: list[Callable[[Blocks], None]] = field(default_factory=list[Callable[[Blocks], None]])


class TextReader:
    """Reads the blocks of a text one by one."""

    def __init__(self, file: OpenFile, styles: Styles) -> None:
        self._file = file
        self.styles = styles
        self._notes = 0
        self._headings: dict[int, int] = {}
        self._counts: dict[str, dict[int, int]] = {}  # of lists that may be continued
        self._tables = 0  # that are open, within each other

    def blocks_of(self, elements: Iterable[Element], into: Blocks) -> None:
        for element in elements:
            self.block(element, into)

    def block(self, element: Element, into: Blocks) -> None:
        """Adds a paragraph, heading, list or table, or what is in a container."""
        tag = element.tag
        if tag == "text:p" or tag == "text:h":
            self._paragraph(element, into)
        elif tag == "text:list":
            self._list(element, into, "", 1, {})
        elif tag == "table:table":
            self.table(element, into)
        elif tag.startswith("draw:"):
            self._frame(element, into)
        elif tag not in _LEFT_OUT and not tag.endswith("-source"):
            self.blocks_of(element, into)

    def _paragraph(
        self, element: Element, into: Blocks, item: tuple[int, str] | None = None
    ) -> None:
        line = _Line()
        self._inline(element, line)
        text = _ended("".join(line.pieces))
        if element.tag == "text:h":
            level = number(element.get("text:outline-level"), 1)
            label = self._outline(level) if text.strip() else ""
            into.heading(level, f"{label} {text}")
        elif item is not None:
            into.item(*item, text)
        else:
            into.paragraph(text)
        for add in line.after:
            add(into)

    def _outline(self, level: int) -> str:
        """The number of the next heading of a level, "" if headings have none."""
        for deeper in [at for at in self._headings if at > level]:
            del self._headings[deeper]
        known = self.styles.outline
        form = known.get(level)
        self._headings[level] = self._headings.get(level, (form.start if form else 1) - 1) + 1
        return _label(known, self._headings, level) if form and form.format else ""

    def _list(
        self, element: Element, into: Blocks, style: str, depth: int, counts: dict[int, int]
    ) -> None:
        style = element.get("text:style-name", style)
        levels = self.styles.lists.get(style, {})
        if depth == 1:
            goes_on = element.get("text:continue-numbering") == "true" or element.get(
                "text:continue-list"
            )
            counts = self._counts.get(style, {}) if goes_on else {}
            self._counts[style] = counts
        form = levels.get(depth)
        for entry in element:
            if entry.tag not in ("text:list-item", "text:list-header"):
                continue
            has_label = entry.tag == "text:list-item"
            for child in entry:
                if child.tag == "text:list":
                    self._list(child, into, style, depth + 1, counts)
                elif child.tag == "text:h" or not has_label or child.tag != "text:p":
                    self.block(child, into)
                else:
                    label = BULLET
                    if form is not None and form.format:
                        start = number(entry.get("text:start-value"), 0)
                        counts[depth] = start or counts.get(depth, form.start - 1) + 1
                        label = _label(levels, counts, depth) or BULLET
                    for deeper in [at for at in counts if at > depth]:
                        del counts[deeper]
                    self._paragraph(child, into, (depth - 1, label))
                    has_label = False

    def table(self, element: Element, into: Blocks) -> None:
        """Adds a table; one of a single cell is what is in it."""
        rows: list[list[Blocks]] = []
        size = 0
        self._tables += 1
        is_inner = self._tables > 1  # what is repeated in a table that is repeated is left out
        for row in table_rows(element):
            if size > MOST_CELLS:
                break
            cells: list[Blocks] = []
            for cell in row:
                if cell.tag not in ("table:table-cell", "table:covered-table-cell"):
                    continue
                inner = Blocks()
                if cell.tag == "table:table-cell":
                    self.blocks_of(cell, inner)
                count = repeated(cell, "table:number-columns-repeated")
                cells.extend([inner] * (1 if is_inner else min(count, MOST_COLUMNS)))
            times = 1 if is_inner else repeated(row, "table:number-rows-repeated")
            rows.extend([cells] * times)
            size += len(cells) * times
        self._tables -= 1
        if len(rows) == 1 and len(rows[0]) == 1:
            into.extend(rows[0][0])
        else:
            into.table([[cell.cell for cell in row] for row in rows])

    def _frame(self, element: Element, into: Blocks) -> None:
        """Adds the text of a text box or another shape; of alternatives the first."""
        for child in element:
            if child.tag == "draw:object":
                formula = self._formula(child)
                into.paragraph(formula)
            elif child.tag != "draw:image":
                self.block(child, into)

    def _formula(self, element: Element) -> str:
        root = next(element.iter("math:math"), None)
        if root is None and (address := element.get("xlink:href", "")):
            root = self._file.object(address)
        return mathml_text(root) if root is not None and root.tag == "math:math" else ""

    def _inline(self, element: Element, line: _Line) -> None:
        """Collects the text within an element."""
        self._add(element.text, line)
        for child in element:
            tag = child.tag
            if tag == "text:s":
                line.pieces.append("\xa0" * min(number(child.get("text:c"), 1), 100))
            elif tag == "text:tab":
                line.pieces.append("\t")
            elif tag == "text:line-break":
                line.pieces.append("\n")
            elif tag == "text:note":
                self._note(child, line)
            elif tag == "text:a":
                start = len(line.pieces)
                self._inline(child, line)
                address = child.get("xlink:href", "")
                if address and not address.startswith("#"):
                    text = _ended("".join(line.pieces[start:]))
                    line.pieces[start:] = [link(text, address)]
            elif tag.startswith("draw:"):
                self._shape(child, line)
            elif tag not in _LEFT_OUT:
                self._inline(child, line)
            self._add(child.tail, line)

    def _add(self, text: str | None, line: _Line) -> None:
        if text:
            line.pieces.append(_SPACES.sub(" ", text))

    def _shape(self, element: Element, line: _Line) -> None:
        found = next(element.iter("draw:object"), None)
        formula = self._formula(found) if found is not None else ""
        if formula:
            line.pieces.append(formula)
        else:
            line.after.append(lambda into: self._frame(element, into))

    def _note(self, element: Element, line: _Line) -> None:
        body = element.find("text:note-body")
        self._notes += 1
        sign = f"[^{self._notes}]"
        line.pieces.append(sign)
        inner = Blocks()
        if body is not None:
            self.blocks_of(body, inner)
        line.after.append(lambda into: into.paragraph(f"{sign}: {inner.text}"))


def _ended(text: str) -> str:
    """A paragraph's text: spaces that were written together are one, those meant stay."""
    return re.sub(" {2,}", " ", text).replace("\xa0", " ")


def _label(levels: dict[int, _Level], counts: dict[int, int], depth: int) -> str:
    form = levels[depth]
    if form.format == "none":
        return ""
    first = max(1, depth - form.shown + 1)
    shown = [
        counted(counts.get(at, levels[at].start), levels[at].format)
        for at in range(first, depth + 1)
        if at in levels and levels[at].format
    ]
    return form.prefix.strip() + ".".join(shown) + form.suffix.strip()


def table_rows(element: Element) -> Iterator[Element]:
    """The rows of a table, also those in groups and headers, without those of inner tables."""
    for child in element:
        if child.tag == "table:table-row":
            yield child
        elif child.tag in (
            *("table:table-header-rows", "table:table-rows", "table:table-row-group"),
        ):
            yield from table_rows(child)


def repeated(element: Element, key: str) -> int:
    """How many times a row or cell is there, up to a limit."""
    return max(1, min(number(element.get(key), 1), MOST_REPEATED))
