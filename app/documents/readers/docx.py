"""Text of Word documents: headings, lists, tables, notes, formulas, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from app.documents.office.drawing import related_blocks
from app.documents.office.formulas import formula_text
from app.documents.office.numbering import Numbering
from app.documents.office.ooxml import (
    Relation,
    children,
    is_on,
    main_part,
    number,
    part_of,
    relations,
    title,
)
from app.documents.office.writing import BULLET, Blocks, link
from app.documents.readers.package import Package
from app.documents.source import Source
from app.domain.documents import Document, DocumentKind

DEEPEST_STYLE = 20  # styles based on each other
_DEEPEST_FIELD = 50  # fields within each other
_LONGEST_INSTRUCTION = 4_000  # characters of a field
_HEADING = re.compile(r"heading (\d)")
_TARGET = re.compile(r'HYPERLINK\s+"([^"]+)"')
_LEFT_OUT = frozenset(("w:del", "w:moveFrom", "w:rPr", "w:pPr", "w:sdtPr", "w:instrText", "w:rt"))
_SIGNS = {"w:tab": "\t", "w:ptab": "\t", "w:br": "\n", "w:cr": "\n", "w:noBreakHyphen": "-"}


def read(source: Source) -> Document:
    """The document of a docx file or its like; raises ExtractionError."""
    with Package(source) as package:
        main = main_part(package, "word/document.xml")
        reader = _Reader(package, main)
        for element in package.elements(main, "w:p", "w:tbl", "mc:AlternateContent"):
            if element.tag == "mc:AlternateContent":
                whole = Element("w:body")
                whole.append(element)
                reader.blocks_of(children(whole), reader.blocks)
            else:
                reader.block(element, reader.blocks)
            if reader.blocks.is_full:
                break
        return reader.blocks.document(DocumentKind.WORD, title(package), package.warnings)


@dataclass(slots=True)
class _Style:
    based_on: str = ""
    heading: int = 0  # 1 to 9; 0: none
    numbering: tuple[str, int] | None = None  # list, level
    is_hidden: bool = False


@dataclass(slots=True)
class _Field:
    """A field that is open: its instruction, then its result."""

    instruction: str = ""
    in_result: bool = False
    start: int = 0  # of its result, in the pieces of the paragraph


@dataclass(slots=True)
class _Line:
    """The text of a paragraph as it is collected, and what follows the paragraph."""

    pieces: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])  # and charts and diagrams
    boxes: list[Element] = field(default_factory=list[Element])


class _Reader:
    """Reads the blocks of a document one by one."""

    def __init__(self, package: Package, main: str) -> None:
        self._package = package
        self._relations = relations(package, main)
        styles = part_of(self._relations, "styles")
        self._styles = _styles(package.part(styles) if styles else None)
        lists = part_of(self._relations, "numbering")
        self._numbering = Numbering(package.part(lists) if lists else None)
        self._notes = {
            tag: self._notes_of(package, kind, tag)
            for kind, tag in (("footnotes", "w:footnote"), ("endnotes", "w:endnote"))
        }
        self._fields: list[_Field] = []
        self._joined: list[str] = []  # of paragraphs whose marks are deleted
        self._count = 0  # of notes
        self.blocks = Blocks()

    def _notes_of(self, package: Package, kind: str, tag: str) -> dict[str, tuple[Element, str]]:
        part = part_of(self._relations, kind)
        root = package.part(part) if part else None
        if root is None:
            return {}
        return {each.get("w:id", ""): (each, part) for each in root.findall(tag)}

    def blocks_of(self, elements: Iterable[Element], into: Blocks) -> None:
        for element in elements:
            self.block(element, into)

    def block(self, element: Element, into: Blocks) -> None:
        """Adds a paragraph, table, or what is in a container."""
        if element.tag == "w:p":
            self._paragraph(element, into)
        elif element.tag == "w:tbl":
            self._table(element, into)
        elif element.tag not in _LEFT_OUT:
            self.blocks_of(children(element), into)

    def _paragraph(self, element: Element, into: Blocks) -> None:
        line = _Line()
        self._inline(element, line)
        for each in self._fields:  # that go on in the next paragraph
            each.start = 0
        properties = element.find("w:pPr")
        mark = properties.find("w:rPr") if properties is not None else None
        text = "".join(line.pieces)
        if mark is not None and mark.find("w:del") is not None:
            self._joined.append(text)  # it is joined with the next paragraph
            text = ""
        else:
            text = "".join([*self._joined, text])
            self._joined.clear()
        if text.strip():
            heading, label, depth = self._kind_of(properties)
            if heading:
                into.heading(heading, f"{label or ''} {text}")
            elif label is not None:
                into.item(depth, label or BULLET, text)
            else:
                into.paragraph(text)
        for note in line.notes:
            into.paragraph(note)
        for box in line.boxes:
            self.blocks_of(children(box), into)

    def _kind_of(self, properties: Element | None) -> tuple[int, str | None, int]:
        """Level of a heading or 0, label of a list or None, and its level."""
        style = _value(properties, "w:pStyle")
        heading, numbering = self._of_style(style)
        if properties is not None:
            outline = properties.find("w:outlineLvl")
            if outline is not None:
                heading = (number(outline.get("w:val"), 9) + 1) % 10
            own = properties.find("w:numPr")
            if own is not None:
                numbering = _numbers(own, numbering)
        if numbering is None or numbering[0] in ("", "0"):
            return heading, None, 0
        linked = self._numbering.linked_style(numbering[0])
        if linked and (known := self._styles.get(linked)) is not None and known.numbering:
            numbering = known.numbering[0], numbering[1]
        label = self._numbering.label(*numbering)
        return heading, None if heading and label == BULLET else label, numbering[1]

    def _of_style(self, style: str) -> tuple[int, tuple[str, int] | None]:
        heading, numbering = 0, None
        for _ in range(DEEPEST_STYLE):
            known = self._styles.get(style)
            if known is None:
                break
            heading = heading or known.heading
            numbering = numbering or known.numbering
            style = known.based_on
        return heading, numbering

    def _inline(self, element: Element, line: _Line) -> None:
        """Collects the text within an element."""
        for child in children(element):
            tag = child.tag
            if tag in _LEFT_OUT:
                if tag == "w:instrText" and self._fields and not self._fields[-1].in_result:
                    open_field = self._fields[-1]
                    room = _LONGEST_INSTRUCTION - len(open_field.instruction)
                    open_field.instruction += (child.text or "")[:room]
            elif tag == "w:t":
                self._add(child.text or "", line)
            elif tag == "w:r":
                if not self._is_hidden(child):
                    self._inline(child, line)
            elif tag in _SIGNS:
                self._add(_SIGNS[tag], line)
            elif tag == "w:sym":
                code = number_of_hex(child.get("w:char", ""))
                self._add("•" if 0xF000 <= code < 0xF100 else chr(code) if code else "", line)
            elif tag in ("w:footnoteReference", "w:endnoteReference"):
                self._note(child, line)
            elif tag == "w:fldChar":
                self._field(child.get("w:fldCharType", ""), line)
            elif tag in ("w:hyperlink", "w:fldSimple"):
                self._link(child, line)
            elif tag == "m:oMathPara":
                self._add(" ".join(map(formula_text, child.findall("m:oMath"))), line)
            elif tag == "m:oMath":
                self._add(formula_text(child), line)
            elif tag == "a:graphicData":
                blocks = related_blocks(self._package, child, self._relations)
                if blocks is not None:
                    line.notes.append(blocks.text)
                self._inline(child, line)
            elif tag == "w:txbxContent":
                line.boxes.append(child)
            elif tag != "w:p":
                self._inline(child, line)

    def _add(self, text: str, line: _Line) -> None:
        if text and all(each.in_result for each in self._fields):
            line.pieces.append(text)

    def _is_hidden(self, run: Element) -> bool:
        properties = run.find("w:rPr")
        if properties is None:
            return False
        own = properties.find("w:vanish")
        if own is not None:
            return is_on(own)
        known = self._styles.get(_value(properties, "w:rStyle"))
        return known is not None and known.is_hidden

    def _field(self, kind: str, line: _Line) -> None:
        if kind == "begin":
            del self._fields[_DEEPEST_FIELD:]
            self._fields.append(_Field())
        elif kind == "separate" and self._fields:
            self._fields[-1].in_result = True
            self._fields[-1].start = len(line.pieces)
        elif kind == "end" and self._fields:
            ended = self._fields.pop()
            target = _TARGET.search(ended.instruction)
            if target is not None and ended.in_result:
                text = "".join(line.pieces[ended.start :])
                line.pieces[ended.start :] = [link(text, target[1])]

    def _link(self, element: Element, line: _Line) -> None:
        start = len(line.pieces)
        self._inline(element, line)
        found: Relation | None = self._relations.get(element.get("r:id", ""))
        target = _TARGET.search(element.get("w:instr", ""))
        address = found.target if found is not None and found.is_external else ""
        if address and (anchor := element.get("w:anchor")):
            address = f"{address}#{anchor}"
        if address or target is not None:
            text = "".join(line.pieces[start:])
            line.pieces[start:] = [link(text, address or (target[1] if target else ""))]

    def _note(self, reference: Element, line: _Line) -> None:
        found = self._notes[reference.tag.removesuffix("Reference")].pop(
            reference.get("w:id", ""), None
        )
        if found is None:
            return
        self._count += 1
        sign = f"[^{self._count}]"
        self._add(sign, line)
        inner = Blocks()
        fields, self._fields = self._fields, []
        joined, self._joined = self._joined, []
        self.blocks_of(children(found[0]), inner)
        self._fields, self._joined = fields, joined
        line.notes.append(f"{sign}: {inner.text}")

    def _table(self, element: Element, into: Blocks) -> None:
        rows: list[list[Blocks | None]] = []
        for row in _within(element, "w:tr"):
            properties = row.find("w:trPr")
            if properties is not None and properties.find("w:del") is not None:
                continue
            before = number(_value(properties, "w:gridBefore"))
            cells: list[Blocks | None] = [None] * min(before, 60)
            for cell in _within(row, "w:tc"):
                about = cell.find("w:tcPr")
                merged = about.find("w:vMerge") if about is not None else None
                inner = Blocks()
                if merged is None or merged.get("w:val") == "restart":
                    self.blocks_of(children(cell), inner)
                cells.append(inner)
                span = number(_value(about, "w:gridSpan"), 1)
                cells.extend([None] * min(span - 1, 60))
            rows.append(cells)
        if len(rows) == 1 and len(rows[0]) == 1 and rows[0][0] is not None:  # a frame
            into.extend(rows[0][0])
        else:
            into.table([[cell.cell if cell is not None else "" for cell in row] for row in rows])


def number_of_hex(text: str) -> int:
    """A character's code of hexadecimal digits; 0 if it is none."""
    try:
        code = int(text, 16)
    except ValueError:
        return 0
    return code if code < 0xD800 or 0xE000 <= code < 0x110000 else 0


def _within(element: Element, tag: str) -> Iterable[Element]:
    """The rows or cells of a table, also those in containers, without those of inner tables."""
    for child in children(element):
        if child.tag == tag:
            yield child
        elif child.tag in ("w:sdt", "w:sdtContent", "w:ins", "w:customXml", "w:moveTo"):
            yield from _within(child, tag)


def _value(element: Element | None, name: str) -> str:
    found = element.find(name) if element is not None else None
    return found.get("w:val", "") if found is not None else ""


def _numbers(element: Element, default: tuple[str, int] | None) -> tuple[str, int]:
    known, depth = default or ("", 0)
    own, level = element.find("w:numId"), element.find("w:ilvl")
    return (
        own.get("w:val", "") if own is not None else known,
        number(level.get("w:val")) if level is not None else depth,
    )


def _styles(root: Element | None) -> dict[str, _Style]:
    made: dict[str, _Style] = {}
    for each in root.findall("w:style") if root is not None else ():
        properties, marks = each.find("w:pPr"), each.find("w:rPr")
        name = _value(each, "w:name").lower()
        heading = _HEADING.fullmatch(name)
        outline = _value(properties, "w:outlineLvl")
        level = int(heading[1]) if heading else 1 if name == "title" else 0
        if not level and outline:
            level = (number(outline, 9) + 1) % 10
        own = properties.find("w:numPr") if properties is not None else None
        made[each.get("w:styleId", "")] = _Style(
            _value(each, "w:basedOn"),
            level,
            _numbers(own, None) if own is not None else None,
            marks is not None and is_on(marks.find("w:vanish")),
        )
    return made
