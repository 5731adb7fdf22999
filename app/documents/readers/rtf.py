"""Reader of Rich Text Format: paragraphs, headings, lists, tables and footnotes as Markdown.

Groups are kept on a list and never by recursion, so that their depth costs nothing; pictures,
objects, hidden and deleted text are passed over.
"""

from __future__ import annotations

import mmap
import re
from typing import NamedTuple

from app.documents.decoding import clean, known
from app.documents.source import MOST_CHARACTERS, ExtractionError, ExtractionFault, Source
from app.documents.tables import markdown_table
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, Warned

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|([^\\{}]+)|\\",
    re.DOTALL,
)
_LONGEST_PIECE = 1 << 20  # bytes of text that are taken at once
_CHARSETS = {  # of fonts, as code pages
    77: "mac-roman",
    128: "cp932",
    129: "cp949",
    130: "johab",
    134: "gb18030",
    136: "cp950",
    161: "cp1253",
    162: "cp1254",
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
    254: "cp437",
    255: "cp850",
}
_CHARACTERS = {
    "tab": "\t",
    "line": "\n",
    "softline": "\n",
    "emdash": "\u2014",
    "endash": "\u2013",
    "lquote": "\u2018",
    "rquote": "\u2019",
    "ldblquote": "\u201c",
    "rdblquote": "\u201d",
    "bullet": "\u2022",
    "emspace": " ",
    "enspace": " ",
    "qmspace": " ",
    "zwj": "\u200d",
    "zwnj": "\u200c",
    "ltrmark": "",
    "rtlmark": "",
}
_SYMBOLS = {"~": " ", "_": "-", "-": "", "{": "{", "}": "}", "\\": "\\"}
_PASSED = frozenset(  # groups that are no text of the document
    (
        *("aftncn", "aftnsep", "aftnsepc", "annotation", "atnauthor", "atnid", "bkmkend"),
        *("bkmkstart", "blipuid", "buptim", "colortbl", "comment", "creatim", "datafield"),
        *("datastore", "do", "docvar", "footer", "footerf", "footerl", "footerr", "formfield"),
        *("ftncn", "ftnsep", "ftnsepc", "generator", "header", "headerf", "headerl", "headerr"),
        *("listoverridetable", "listtable", "nonesttables", "nonshppict", "objalias", "objclass"),
        *("objdata", "objname", "pict", "pn", "private", "revtbl", "rsidtbl", "rxe", "shppict"),
        *("sn", "sp", "stylesheet", "sv", "tc", "tcn", "template", "themedata", "txe", "xe"),
    )
)
_STARRED = frozenset(  # groups of newer versions that are text
    ("shpinst", "shptxt", "moMath", "moMathPara", "ud", "nesttableprops", "dptxbxtext", "fldinst")
)
_NEVER_SKIPPED = ("u", "uc", "par", "pard", "cell", "row", "tab", "line")
_LINK = re.compile(r"HYPERLINK\s+(?:\\[a-z]\s+)*\"([^\"]{1,2000})\"")
_HEADING = re.compile(
    r"(?:heading|[u\xfc]berschrift|titre|t[i\xed]tulo)\s+([1-6])\b", re.IGNORECASE
)


class _State(NamedTuple):
    """What a group has in common, restored at its end."""

    passed: bool = False  # it is no text
    hidden: bool = False
    skips: int = 1  # characters after one of Unicode that stand in for it
    codec: str = ""  # of its font; "": that of the document
    collects: str = ""  # where its text goes, if it is not the document's


def read(source: Source) -> Document:
    """The Markdown of a file. Raises ExtractionError if it is no Rich Text Format."""
    if not source.head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{\\rtf"):
        raise ExtractionError(ExtractionFault.DAMAGED, "no Rich Text Format")
    with source.open() as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        parser = _Parser()
        parser.parse(data)
    text = clean(parser.text())
    warnings: list[Warned] = []
    if parser.is_open:
        warnings.append(Warned(DocumentWarning.DAMAGED))
    if parser.is_cut:
        warnings.append(Warned(DocumentWarning.CUT))
    if not text:
        warnings.append(Warned(DocumentWarning.EMPTY))
    page = Page("", text[:MOST_CHARACTERS])
    return Document(
        DocumentKind.WORD, (page,), title=parser.title.strip(), warnings=tuple(warnings)
    )


class _Parser:
    def __init__(self) -> None:
        self.title = ""
        self.is_open = self.is_cut = False
        self._state = _State()
        self._states: list[_State] = []
        self._ends: list[tuple[str, int] | None] = []  # what the end of each group does
        self._codec = "cp1252"
        self._fonts: dict[int, str] = {}
        self._font = 0
        self._styles: dict[int, int] = {}  # levels of those that are headings
        self._style = 0
        self._bytes = bytearray()  # not decoded yet
        self._skip = 0  # characters left that stand in for one of Unicode
        self._starred = False
        self._high = 0  # the first half of a surrogate pair
        self._text: list[str] = []  # of the paragraph
        self._collected: dict[str, list[str]] = {}
        self._link = ""
        self._links: list[str] = []
        self._notes: list[str] = []
        self._outer: list[list[str]] = []  # paragraphs that footnotes interrupt
        self._blocks: list[str] = []
        self._tight: list[bool] = []
        self._marker = ""
        self._level = self._outline = self._length = 0
        self._in_table = False
        self._depth = 0  # of the table that the paragraph is in
        self._cell: list[str] = []
        self._row: list[str] = []
        self._inner: list[str] = []
        self._rows: list[list[str]] = []

    def text(self) -> str:
        """Paragraphs and tables in order, then the footnotes."""
        made: list[str] = []
        for block, is_tight in zip(self._blocks, self._tight, strict=True):
            made += ("\n" if is_tight else "\n\n", block)
        for at, note in enumerate(self._notes, 1):
            made.append(f"\n\n[^{at}]: {note}")
        return "".join(made).strip("\n")

    def parse(self, data: mmap.mmap) -> None:
        at = max(0, data.find(b"{\\rtf"))
        while at < len(data):
            found = _TOKEN.match(data, at, min(len(data), at + _LONGEST_PIECE))
            if found is None:
                break
            at = found.end()
            word, number, code, symbol, brace, text = found.groups()
            if text is not None:
                self._plain(text)
            elif word is not None:
                value = int(number) if number else None
                if word == b"bin":
                    at += max(0, value or 0)
                else:
                    self._word(word.decode("ascii"), value)
            elif code is not None:
                self._hex(int(code, 16))
            elif brace == b"{":
                self._flush()
                self._states.append(self._state)
                self._ends.append(None)
                self._skip = 0
            elif brace == b"}":
                self._flush()
                if not self._states:
                    break
                self._close()
                if not self._states:
                    break
            elif symbol is not None:
                self._symbol(symbol)
            if self._length > MOST_CHARACTERS:
                self.is_cut = True
                break
        self._flush()
        self.is_open = bool(self._states) and not self.is_cut
        while self._states:
            self._close()
        self._end_paragraph()
        self._end_table()

    # Text

    def _plain(self, text: bytes) -> None:
        text = text.translate(None, b"\r\n\0")
        if self._state.passed:
            return
        if self._skip:
            taken = min(self._skip, len(text))
            self._skip -= taken
            text = text[taken:]
        self._bytes += text

    def _hex(self, code: int) -> None:
        if self._skip:
            self._skip -= 1
        elif not self._state.passed:
            self._bytes.append(code)

    def _flush(self) -> None:
        """Decode the bytes that are left, which may be two for a character."""
        if self._bytes:
            codec = self._state.codec or self._codec
            data = bytes(self._bytes)
            self._bytes.clear()
            self._write(data.decode("cp1252" if data.isascii() else codec, "replace"))

    def _write(self, text: str) -> None:
        state = self._state
        if state.collects:
            self._collected.setdefault(state.collects, []).append(text)
        elif not state.hidden and not state.passed:
            self._text.append(text)
            self._length += len(text)

    def _unicode(self, value: int) -> None:
        code = value + 0x10000 if value < 0 else value
        self._skip = self._state.skips
        if 0xD800 <= code < 0xDC00:
            self._high = code
            return
        if 0xDC00 <= code < 0xE000 and self._high:
            code = 0x10000 + ((self._high & 0x3FF) << 10) + (code & 0x3FF)
        self._high = 0
        if 0xF000 <= code < 0xF100:  # of a font of symbols
            code = 0x2022 if code in (0xF0B7, 0xF0A7, 0xF0D8, 0xF0FC, 0xF06E) else code - 0xF000
        if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 and not self._state.passed:
            self._write(chr(code))

    def _symbol(self, symbol: bytes) -> None:
        if symbol == b"*":
            self._starred = True
        elif self._skip:
            self._skip -= 1
        elif symbol in (b"\n", b"\r"):
            self._flush()
            self._end_paragraph()
        elif not self._state.passed:
            character = _SYMBOLS.get(symbol.decode("latin-1"), "")
            self._bytes += character.encode("ascii")

    # Control words

    def _word(self, word: str, value: int | None) -> None:
        starred, self._starred = self._starred, False
        if self._skip and word not in _NEVER_SKIPPED:
            self._skip -= 1
            return
        self._skip = 0
        self._flush()
        if word == "u" and value is not None:
            self._unicode(value)
        elif word == "uc":
            self._state = self._state._replace(skips=max(0, min(value or 0, 100)))
        elif starred and word not in _STARRED:
            self._state = self._state._replace(passed=True)
        elif word in _CHARACTERS:
            self._write(_CHARACTERS[word])
        elif word in _PASSED:
            self._state = self._state._replace(passed=True, collects="")
            if word == "stylesheet":
                self._state = self._state._replace(passed=False, collects="style")
        elif word in ("f", "af", "deff", "fcharset", "cpg", "ansicpg", "mac", "pc", "pca"):
            self._set_font(word, value or 0)
        elif word in ("fonttbl", "info", "listtext", "pntext", "fldinst", "title"):
            self._collect(word)
        elif word == "s":
            self._style = value or 0
        elif not self._state.passed and not self._state.collects:
            self._format(word, value)

    def _collect(self, word: str) -> None:
        if word == "title" and self._state.collects != "info":
            return
        self._state = self._state._replace(collects=word, passed=False)
        self._ends[-1:] = [(word, 0)]
        self._collected.pop(word, None)

    def _set_font(self, word: str, value: int) -> None:
        is_table = self._state.collects == "fonttbl"
        if word == "f":
            self._font = value
            if not is_table:
                self._state = self._state._replace(codec=self._fonts.get(value, ""))
        elif is_table and word == "fcharset" and value in _CHARSETS:
            self._fonts[self._font] = _CHARSETS[value]
        elif word in ("cpg", "ansicpg"):
            codec = known(f"cp{value}") or known(
                {10000: "mac-roman", 936: "gb18030"}.get(value, "")
            )
            if codec and word == "ansicpg":
                self._codec = codec
            elif codec and is_table:
                self._fonts[self._font] = codec
        elif word in ("mac", "pc", "pca"):
            self._codec = {"mac": "mac-roman", "pc": "cp437", "pca": "cp850"}[word]

    def _format(self, word: str, value: int | None) -> None:
        match word:
            case "par" | "sect" | "page" | "column":
                self._end_paragraph()
            case "pard":
                self._in_table, self._depth, self._style, self._outline = False, 0, 0, 0
                self._level = 0
            case "plain":
                self._state = self._state._replace(hidden=False, codec="")
            case "v" | "deleted":
                self._state = self._state._replace(hidden=value != 0)
            case "outlinelevel":
                self._outline = (value or 0) + 1
            case "ilvl":
                self._level = max(0, min(value or 0, 8))
            case "intbl":
                self._in_table = True
            case "itap":
                self._depth = value or 0
            case "cell":
                self._end_cell()
            case "row":
                self._end_row()
            case "nestcell":
                self._inner.append("".join(self._text).strip())
                self._text.clear()
            case "nestrow":
                self._cell.append(" | ".join(self._inner))
                self._inner.clear()
            case "footnote":
                self._text.append(f"[^{len(self._notes) + len(self._outer) + 1}]")
                self._outer.append(self._text)
                self._text = []
                self._ends[-1:] = [("footnote", 0)]
            case "fldrslt":
                self._links.append(self._link)
                self._ends[-1:] = [("fldrslt", len(self._text))]
                self._link = ""
            case _:
                pass

    def _close(self) -> None:
        """End a group: what it collected goes where it belongs."""
        ended, self._state = self._state, self._states.pop()
        end = self._ends.pop()
        self._skip = 0
        if ended.collects == "style":
            self._end_style()
        if end is None:
            return
        word, at = end
        text = "".join(self._collected.pop(word, ()))
        if word == "title":
            self.title = self.title or text[:1000]
        elif word in ("listtext", "pntext"):
            self._marker = text.strip() or self._marker
        elif word == "fldinst":
            found = _LINK.search(text[:4000])
            self._link = found[1] if found else ""
        elif word == "fldrslt":
            address = self._links.pop()
            label = "".join(self._text[at:]).strip()
            if address and label and address.removeprefix("mailto:") != label:
                self._text[at:] = [f"[{label}]({address})"]
        elif word == "footnote":
            note = " ".join("".join(self._text).split())
            self._text = self._outer.pop()
            self._notes.append(note)

    def _end_style(self) -> None:
        name = "".join(self._collected.pop("style", ()))
        if found := _HEADING.search(name[:200]):
            self._styles.setdefault(self._style, int(found[1]))
        self._style = 0

    # Blocks

    def _end_paragraph(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        marker, self._marker = self._marker, ""
        if self._outer:  # in a footnote
            self._text.append(text + "\n")
            return
        if self._in_table or self._depth > 0:
            prefix = f"{_bullet(marker)} " if marker else ""
            self._cell.append(prefix + text)
            return
        lines = [line.strip(" ") for line in text.split("\n")]
        text = "\n".join(lines).strip("\n")
        self._end_table()
        if not text.strip():
            return
        level = self._outline if 1 <= self._outline <= 6 else self._styles.get(self._style, 0)
        is_item = bool(marker) and not level
        if level:
            heading = f"{marker} {text}" if marker else text
            text = "#" * level + " " + " ".join(heading.split())
        elif is_item:
            indent = "  " * self._level
            text = f"{indent}{_bullet(marker)} " + text.replace("\n", f"\n{indent}  ")
        self._tight.append(is_item and bool(self._blocks) and _is_item(self._blocks[-1]))
        self._blocks.append(text)

    def _end_cell(self) -> None:
        self._cell.append("".join(self._text))
        self._text.clear()
        self._row.append("\n".join(self._cell))
        self._cell.clear()
        self._marker = ""

    def _end_row(self) -> None:
        if "".join(self._text).strip():
            self._end_cell()
        self._text.clear()
        self._rows.append(self._row)
        self._row = []

    def _end_table(self) -> None:
        if self._row or self._cell:
            self._row.append("\n".join(self._cell))
            self._cell.clear()
            self._end_row()
        if self._rows:
            if text := markdown_table(self._rows):
                self._blocks.append(text)
                self._tight.append(False)
            self._rows = []


def _bullet(marker: str) -> str:
    """How an item begins: its number or letter, or a dash for any other sign."""
    return marker if any(each.isalnum() for each in marker) and len(marker) > 1 else "-"


def _is_item(block: str) -> bool:
    return bool(re.match(r"\s*(?:-|\(?\w{1,6}[.)])\s", block))
