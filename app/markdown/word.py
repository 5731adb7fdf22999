"""Word documents: Markdown as a .docx file, with headings, lists, tables, quotes and code."""

from __future__ import annotations

import re
import zipfile
from io import BytesIO
from unicodedata import bidirectional
from xml.sax.saxutils import escape, quoteattr

from app.markdown.blocks import Block, Code, Formula, Heading, Paragraph, Rule, Run, Runs, Table
from app.markdown.stream import parse

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_PARTS = ("document", "styles", "numbering")
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # as XML 1.0 has it
_LETTERS = ("L", "R", "AL")  # of which the direction is known
_INDENT = 360  # twentieths of a point, of a level of a list or quote
_LEVELS = 9  # of a list, as many as Word has
_DATE = 1980, 1, 1, 0, 0, 0  # so that the same text gives the same bytes


def word_document(markdown: str) -> bytes:
    """The bytes of a .docx file with this text."""
    writer = _Writer()
    for block in parse(markdown):
        writer.add(block)
    texts = {"document": writer.document(), "styles": _styles(), "numbering": writer.numbering()}
    kinds = {"document": "document.main"}
    types = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType="{_TYPE}.{kinds.get(name, name)}+xml"/>'
        for name in _PARTS
    )
    xml = '<Default Extension="xml" ContentType="application/xml"/>'
    rels = f'<Default Extension="rels" ContentType="{_RELATIONS}"/>'
    files = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">{xml}{rels}{types}</Types>',
        "_rels/.rels": _relations({"officeDocument": "word/document.xml"}),
        "word/_rels/document.xml.rels": _relations(
            {"styles": "styles.xml", "numbering": "numbering.xml"}
        ),
        **{f"word/{name}.xml": text for name, text in texts.items()},
    }
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as package:
        for name, text in files.items():
            package.writestr(zipfile.ZipInfo(name, _DATE), _HEAD + text, zipfile.ZIP_DEFLATED)
    return made.getvalue()


_RELATIONS = "application/vnd.openxmlformats-package.relationships+xml"


def _relations(targets: dict[str, str]) -> str:
    made = "".join(
        f'<Relationship Id="r{n}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(targets.items(), 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{made}</Relationships>'


class _Writer:
    """The body of a document, and the numberings of its lists: 1 is of bullets."""

    def __init__(self) -> None:
        self._body: list[str] = []
        self._starts: list[tuple[int, int]] = []  # level and first number of each numbered list
        self._numbered: dict[int, int] = {}  # the list that goes on, by level

    def add(self, block: Block) -> None:
        """Add a block behind the others."""
        match block:
            case Heading():
                self._add(block.runs, block, f"Heading{block.level}")
            case Paragraph():
                self._add(block.runs, block, "Quote" if _is_quoted(block) else "")
            case Code():
                self._add((Run(block.text, code=True),), block, "Code")
            case Formula():
                self._add((Run(block.source),), block, "")
            case Rule():
                self._body.append(
                    "<w:p><w:pPr><w:pBdr>"
                    '<w:bottom w:val="single" w:sz="6" w:space="1" w:color="auto"/>'
                    "</w:pBdr></w:pPr></w:p>"
                )
            case Table():
                self._body.append(_table(block))

    def _add(self, runs: Runs, block: Block, style: str) -> None:
        lists = [level for level in block.place.path if not level.quote]
        inside = lists[-1] if lists else None
        depth = min(len(lists), _LEVELS) - 1
        shape, indent = f"<w:pStyle w:val={quoteattr(style)}/>" if style else "", ""
        if inside and inside.begins and inside.marker:
            number = re.match(r"\d+", inside.marker)
            if number is None:
                list_id = 1
                if inside.marker != "\u2022":
                    runs = (Run(f"{inside.marker} "), *runs)  # a box
            else:
                if inside.first or depth not in self._numbered:
                    self._starts.append((depth, int(number[0])))
                    self._numbered[depth] = len(self._starts) + 1
                list_id = self._numbered[depth]
            shape += f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{list_id}"/></w:numPr>'
        elif lists:
            indent = f'<w:ind w:left="{_INDENT * (depth + 2)}"/>'
        shape += _direction(runs) + indent
        shape = f"<w:pPr>{shape}</w:pPr>" if shape else ""
        self._body.append(f"<w:p>{shape}{''.join(map(_run, runs))}</w:p>")

    def document(self) -> str:
        """The XML of the text."""
        body = "".join(self._body)
        return f"<w:document {_W}><w:body>{body}<w:sectPr/></w:body></w:document>"

    def numbering(self) -> str:
        """The XML of the lists."""
        kinds = "".join(
            f'<w:abstractNum w:abstractNumId="{kind}">{levels}</w:abstractNum>'
            for kind, levels in enumerate((_levels("bullet"), _levels("decimal")))
        )
        numbered = "".join(
            f'<w:num w:numId="{n}"><w:abstractNumId w:val="1"/><w:lvlOverride w:ilvl="{level}">'
            f'<w:startOverride w:val="{start}"/></w:lvlOverride></w:num>'
            for n, (level, start) in enumerate(self._starts, 2)
        )
        bullets = '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
        return f"<w:numbering {_W}>{kinds}{bullets}{numbered}</w:numbering>"


def _is_quoted(block: Block) -> bool:
    return any(level.quote for level in block.place.path)


def _levels(kind: str) -> str:
    made = ""
    for level in range(_LEVELS):
        text = "\u2022" if kind == "bullet" else f"%{level + 1}."
        made += (
            f'<w:lvl w:ilvl="{level}"><w:start w:val="1"/><w:numFmt w:val="{kind}"/>'
            f'<w:lvlText w:val="{text}"/><w:pPr><w:ind w:left="{_INDENT * (level + 2)}"'
            f' w:hanging="{_INDENT}"/></w:pPr></w:lvl>'
        )
    return made


def _is_rtl(text: str) -> bool:
    """Whether a text is written from right to left, by its first letter."""
    return next(
        (kind in ("R", "AL") for kind in map(bidirectional, text) if kind in _LETTERS), False
    )


def _direction(runs: Runs) -> str:
    """The property of a paragraph that is written from right to left."""
    return "<w:bidi/>" if _is_rtl("".join(run.text for run in runs)) else ""


def _run(run: Run) -> str:
    shape = '<w:rFonts w:ascii="Courier New" w:hAnsi="Courier New"/>' if run.code else ""
    looks = (("b", run.bold), ("bCs", run.bold), ("i", run.italic), ("iCs", run.italic))
    more = (("strike", run.strike), ("rtl", _is_rtl(run.text)))
    shape += "".join(f"<w:{name}/>" for name, wanted in (*looks, *more) if wanted)
    shape = f"<w:rPr>{shape}</w:rPr>" if shape else ""
    text = _NO_XML.sub("\ufffd", run.text)
    if run.link and run.link != run.text and ":" in run.link:
        text += f" ({_NO_XML.sub(chr(0xFFFD), run.link)})"
    lines = (f'<w:t xml:space="preserve">{escape(line)}</w:t>' for line in text.split("\n"))
    return f"<w:r>{shape}{'<w:br/>'.join(lines)}</w:r>"


def _table(table: Table) -> str:
    borders = "".join(
        f'<w:{side} w:val="single" w:sz="4" w:space="0" w:color="auto"/>'
        for side in ("top", "left", "bottom", "right", "insideH", "insideV")
    )
    first = "".join(run.text for cell in table.header for run in cell)
    visual = "<w:bidiVisual/>" if _is_rtl(first) else ""
    grid = "<w:gridCol/>" * len(table.header)
    rows = "".join(
        f"<w:tr>{''.join(map(_cell, cells, table.alignments))}</w:tr>"
        for cells in (table.header, *table.rows)
    )
    return (
        f"<w:tbl><w:tblPr>{visual}<w:tblBorders>{borders}</w:tblBorders></w:tblPr>"
        f"<w:tblGrid>{grid}</w:tblGrid>{rows}</w:tbl><w:p/>"
    )


def _cell(runs: Runs, alignment: str) -> str:
    shape = f'<w:pPr>{_direction(runs)}<w:jc w:val="{alignment}"/></w:pPr>'
    return f"<w:tc><w:p>{shape}{''.join(map(_run, runs))}</w:p></w:tc>"


def _styles() -> str:
    headings = "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{level}"><w:name w:val="heading {level}"/>'
        f'<w:basedOn w:val="Normal"/><w:pPr><w:keepNext/><w:spacing w:before="240" w:after="80"/>'
        f'<w:outlineLvl w:val="{level - 1}"/></w:pPr>'
        f'<w:rPr><w:b/><w:sz w:val="{max(36 - 4 * level, 22)}"/></w:rPr></w:style>'
        for level in range(1, 7)
    )
    normal = (
        '<w:style w:type="paragraph" w:default="1" w:styleId="Normal"><w:name w:val="Normal"/>'
        '<w:pPr><w:spacing w:after="120"/></w:pPr><w:rPr><w:sz w:val="22"/></w:rPr></w:style>'
    )
    quote = (
        '<w:style w:type="paragraph" w:styleId="Quote"><w:name w:val="Quote"/>'
        f'<w:basedOn w:val="Normal"/><w:pPr><w:ind w:left="{_INDENT}"/></w:pPr>'
        "<w:rPr><w:i/></w:rPr></w:style>"
    )
    code = (
        '<w:style w:type="paragraph" w:styleId="Code"><w:name w:val="Code"/>'
        '<w:basedOn w:val="Normal"/><w:rPr><w:sz w:val="20"/></w:rPr></w:style>'
    )
    return f"<w:styles {_W}>{normal}{headings}{quote}{code}</w:styles>"
