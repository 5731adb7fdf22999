"""Text of PowerPoint presentations: a page for each slide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from app.documents.office.drawing import body_blocks, related_blocks, table_blocks
from app.documents.office.ooxml import (
    Relation,
    children,
    main_part,
    number,
    part_of,
    relations,
    title,
)
from app.documents.office.slides import Shape, slide_text, slides
from app.documents.office.writing import Blocks
from app.documents.readers.package import Package
from app.documents.source import Source
from app.domain.documents import Document

_TITLES = ("title", "ctrTitle")
_LEFT_OUT = ("dt", "ftr", "sldNum", "hdr", "sldImg")  # of every slide
_LISTS = ("body", "obj", "")
Box = tuple[float, float, float, float]  # x, y, width, height
Places = dict[tuple[str, str], Box]  # of placeholders by kind and index


@dataclass(frozen=True, slots=True)
class _Move:
    """How the places within a group become places on the slide."""

    x: float = 0.0
    y: float = 0.0
    across: float = 1.0
    down: float = 1.0


def read(source: Source) -> Document:
    """The document of a pptx file or its like; raises ExtractionError."""
    with Package(source) as package:
        main = main_part(package, "ppt/presentation.xml")
        found = relations(package, main)
        root = package.tree(main)
        listed = [each.get("r:id", "") for each in root.iter("p:sldId")] if root is not None else []
        parts = [found[each].target for each in listed if each in found]
        known: dict[str, Places] = {}
        texts = (_slide(package, part, known) for part in parts if part in package)
        return slides(texts, title(package), lambda: package.warnings)


def _slide(package: Package, part: str, known: dict[str, Places]) -> str:
    found = relations(package, part)
    root = package.part(part)
    if root is None:
        return ""
    layout = part_of(found, "slideLayout")
    if layout not in known:
        known[layout] = _places(package, layout)
    shapes = list(_shapes(package, _tree(root), found, known[layout], _Move()))
    notes = part_of(found, "notesSlide")
    text = _notes(package, notes) if notes else ""
    return slide_text(shapes, text, is_hidden=root.get("show") in ("0", "false"))


def _tree(root: Element) -> Element:
    """The tree of shapes of a slide, a layout or notes."""
    return next(root.iter("p:spTree"), root)


def _notes(package: Package, part: str) -> str:
    root = package.part(part)
    found = relations(package, part)
    made = Blocks()
    for shape in _tree(root).iter("p:sp") if root is not None else ():
        body, (kind, _) = shape.find("p:txBody"), _placeholder(shape)
        if body is not None and kind == "body":
            made.extend(body_blocks(body, found))
    return made.text


def _placeholder(shape: Element) -> tuple[str, str]:
    """Kind and index of a placeholder; "none" of a shape that is none."""
    mark = next(shape.iter("p:ph"), None)
    return ("none", "") if mark is None else (mark.get("type", ""), mark.get("idx", ""))


def _places(package: Package, layout: str) -> Places:
    """Where the placeholders of a layout and of its master stand."""
    made: Places = {}
    master = part_of(relations(package, layout), "slideMaster") if layout else ""
    for part in (master, layout):
        root = package.part(part) if part else None
        for shape in _tree(root).iter("p:sp") if root is not None else ():
            kind, index = _placeholder(shape)
            box = _box(shape)
            if box is not None and kind != "none":
                made[kind, ""] = made[kind, index] = box
                if index:
                    made["", index] = box
    return made


def _box(shape: Element) -> Box | None:
    """Where a shape says that it stands."""
    for tag in ("p:spPr", "p:grpSpPr"):
        properties = shape.find(tag)
        place = properties.find("a:xfrm") if properties is not None else None
        if place is not None:
            return _place(place, "a:off", "a:ext")
    place = shape.find("p:xfrm")
    return _place(place, "a:off", "a:ext") if place is not None else None


def _place(place: Element, at: str, size: str) -> Box | None:
    start, extent = place.find(at), place.find(size)
    if start is None or extent is None:
        return None
    return (
        number(start.get("x")),
        number(start.get("y")),
        number(extent.get("cx")),
        number(extent.get("cy")),
    )


def _shapes(
    package: Package, tree: Element, found: dict[str, Relation], places: Places, move: _Move
) -> Iterator[Shape]:
    for shape in children(tree):
        if shape.tag == "p:grpSp":
            yield from _shapes(package, shape, found, places, _within(shape, move))
            continue
        kind, index = _placeholder(shape)
        if kind in _LEFT_OUT or shape.tag not in ("p:sp", "p:graphicFrame", "p:cxnSp"):
            continue
        box = _box(shape) or places.get((kind, index)) or places.get(("", index))
        box = box or places.get((kind, "")) or (0.0, 0.0, 0.0, 0.0)
        if shape.tag == "p:graphicFrame":
            text = _frame(package, shape, found)
        else:
            body = shape.find("p:txBody")
            if body is None:
                continue
            is_list = kind in _LISTS
            text = body_blocks(body, found, is_list=is_list).text
        yield Shape(
            move.x + box[0] * move.across,
            move.y + box[1] * move.down,
            box[2] * move.across,
            box[3] * move.down,
            text,
            kind in _TITLES,
        )


def _within(group: Element, move: _Move) -> _Move:
    properties = group.find("p:grpSpPr")
    place = properties.find("a:xfrm") if properties is not None else None
    outer = _place(place, "a:off", "a:ext") if place is not None else None
    inner = _place(place, "a:chOff", "a:chExt") if place is not None else None
    if outer is None or inner is None:
        return move
    across = outer[2] / inner[2] if inner[2] else 1.0
    down = outer[3] / inner[3] if inner[3] else 1.0
    return _Move(
        move.x + (outer[0] - inner[0] * across) * move.across,
        move.y + (outer[1] - inner[1] * down) * move.down,
        move.across * across,
        move.down * down,
    )


def _frame(package: Package, frame: Element, found: dict[str, Relation]) -> str:
    """The text of a table, a chart or a diagram."""
    table = next(frame.iter("a:tbl"), None)
    if table is not None:
        return table_blocks(table, found).text
    blocks = related_blocks(package, frame, found)
    return blocks.text if blocks is not None else ""
