"""Text and tables of DrawingML, of which the shapes of slides are made, and data of charts."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from xml.etree.ElementTree import Element

from app.documents.office.formulas import formula_text
from app.documents.office.number_formats import shown
from app.documents.office.numbering import counted
from app.documents.office.ooxml import Relation, children, number
from app.documents.office.writing import BULLET, Blocks, link
from app.documents.readers.package import Package

_NUMBERS = {
    "alphaLc": "lowerLetter",
    "alphaUc": "upperLetter",
    "romanLc": "lowerRoman",
    "romanUc": "upperRoman",
    "arabic": "decimal",
}
MOST_POINTS = 2_000  # of a series
_MOST_SERIES = 200  # of a chart


def body_blocks(body: Element, found: dict[str, Relation], *, is_list: bool = False) -> Blocks:
    """The paragraphs of a text body; `is_list`: they have bullets unless they say otherwise."""
    made = Blocks()
    paragraphs = [(each, _line(each, found)) for each in body.findall("a:p")]
    paragraphs = [(each, text) for each, text in paragraphs if text.strip()]
    is_list = is_list and len(paragraphs) > 1
    counts: dict[int, int] = {}
    for each, text in paragraphs:
        properties = each.find("a:pPr")
        depth = number(properties.get("lvl")) if properties is not None else 0
        depth = max(0, min(depth, 8))
        auto = properties.find("a:buAutoNum") if properties is not None else None
        has_mark = properties is not None and properties.find("a:buChar") is not None
        has_none = properties is not None and properties.find("a:buNone") is not None
        for deeper in [at for at in counts if at > depth or (at == depth and auto is None)]:
            del counts[deeper]
        if auto is not None:
            start = number(auto.get("startAt"), 1)
            counts[depth] = counts.get(depth, start - 1) + 1
            made.item(depth, _label(counts[depth], auto.get("type", "arabicPeriod")), text)
        elif has_mark or ((is_list or depth) and not has_none):
            made.item(depth, BULLET, text)
        else:
            made.paragraph(text)
    return made


def _label(value: int, kind: str) -> str:
    for start, form in _NUMBERS.items():
        if kind.startswith(start):
            text = counted(value, form)
            if kind.endswith("ParenBoth"):
                return f"({text})"
            return text + (
                ")" if kind.endswith("ParenR") else "." if kind.endswith("Period") else ""
            )
    return f"{value}."


def _line(paragraph: Element, found: dict[str, Relation]) -> str:
    made: list[str] = []
    for child in children(paragraph):
        if child.tag in ("a:r", "a:fld"):
            text = child.findtext("a:t") or ""
            properties = child.find("a:rPr")
            click = properties.find("a:hlinkClick") if properties is not None else None
            target = found.get(click.get("r:id", "")) if click is not None else None
            if target is not None and target.is_external and target.target:
                text = link(text, target.target)
            made.append(text)
        elif child.tag == "a:br":
            made.append("\n")
        elif child.tag not in ("a:pPr", "a:endParaRPr"):
            made.extend(formula_text(each) for each in child.iter("m:oMath"))
    return "".join(made)


def table_blocks(table: Element, found: dict[str, Relation]) -> Blocks:
    """A table; the text of a merged cell stands in its first one."""
    rows: list[list[str]] = []
    for row in table.findall("a:tr"):
        cells: list[str] = []
        for cell in row.findall("a:tc"):
            body = cell.find("a:txBody")
            is_covered = cell.get("hMerge") in ("1", "true") or cell.get("vMerge") in ("1", "true")
            cells.append("" if is_covered or body is None else body_blocks(body, found).cell)
        rows.append(cells)
    made = Blocks()
    made.table(rows)
    return made


def related_blocks(package: Package, frame: Element, found: dict[str, Relation]) -> Blocks | None:
    """The text of the chart or diagram that a frame refers to; None for neither."""
    for tag, key in (("c:chart", "r:id"), ("dgm:relIds", "r:dm")):
        mark = next(frame.iter(tag), None)
        relation = found.get(mark.get(key, "")) if mark is not None else None
        root = package.part(relation.target) if relation and not relation.is_external else None
        if root is not None and tag == "c:chart":
            return chart_blocks(root)
        if root is not None:
            made = Blocks()
            for body in root.iter("dgm:t"):
                made.extend(body_blocks(body, {}))
            return made
    return None


def chart_blocks(chart: Element) -> Blocks:
    """A chart's title and its data as a table: a row for each category."""
    made = Blocks()
    whole = chart.find("c:chart")
    heading = whole.find("c:title") if whole is not None else None
    if heading is not None:
        made.paragraph("".join(each.text or "" for each in heading.iter("a:t")))
    series = list(islice(chart.iter("c:ser"), _MOST_SERIES))
    names: dict[int, str] = {}
    rows: dict[int, dict[int, str]] = {}
    for column, each in enumerate(series):
        for tag in ("c:cat", "c:xVal"):
            names.update(_points(each.find(tag)))
        for tag in ("c:val", "c:yVal"):
            for at, value in _points(each.find(tag)).items():
                rows.setdefault(at, {})[column] = value
    titles = [
        "".join(t.text or "" for tx in each.findall("c:tx") for t in tx.iter("c:v"))
        for each in series
    ]
    made.table(
        [
            ["", *titles],
            *(
                [names.get(at, ""), *(row.get(i, "") for i in range(len(series)))]
                for at, row in sorted(rows.items())
            ),
        ]
        if rows
        else []
    )
    return made


def _points(data: Element | None) -> dict[int, str]:
    """The cached values of a chart's data by their index."""
    made: dict[int, str] = {}
    if data is None:
        return made
    code = next((each.text or "" for each in data.iter("c:formatCode")), "")
    for point in data.iter("c:pt"):
        text = point.findtext("c:v") or ""
        if code and text:
            with suppress(ValueError, OverflowError):
                text = shown(float(text), code)
        if len(made) < MOST_POINTS:
            made[number(point.get("idx"))] = text
    return made
