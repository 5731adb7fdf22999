"""Rich Text Format as Markdown."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from app.documents.source import ExtractionError, ExtractionFault
from app.domain.documents import DocumentKind
from text_files import HOSTILE, MOST_SECONDS, Read, reader, warned

HEAD = r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\froman\fcharset0 Times;}{\f1\fcharset204 Arial Cyr;}{\f2\fcharset128 MS Mincho;}{\f3\fcharset2 Symbol;}}{\colortbl;\red0\green0\blue0;}{\stylesheet{\s0 Normal;}{\s1\outlinelevel0 heading 1;}{\s2 heading 2;}}"
ROW = r"\trowd\cellx1000\cellx2000 \pard\intbl "

TEXTS = {
    "paragraphs": (r"One.\par Two\line lines.\par\par\pard Three", "One.\n\nTwo\nlines.\n\nThree"),
    "raw line ends": ("One \nword\r\n s.\\par\r\nTwo", "One word s.\n\nTwo"),
    "styles": (r"{\b bold} {\i it{\ul al}ic}\plain  plain", "bold italic plain"),
    "escapes": (r"a\{b\}c\\d\~e\_f\-g", r"a{b}c\d e-fg"),
    "quotes": (r"\ldblquote a\rdblquote  \lquote b\rquote \emdash c\endash d\bullet", "“a” ‘b’—c–d•"),
    "code page": (r"Gr\'fc\'dfe \'80 5", "Grüße € 5"),
    "code page of a font": (r"{\f1 \'cf\'f0\'e8\'e2\'e5\'f2} {\f2 \'93\'fa\'96\'7b}", "Привет 日本"),
    "two bytes, one of them plain": (r"{\f2 \'83\'41\'83A\'83\'5c}", "アアソ"),
    "unicode": (r"\u1055?\u1088?\u252\'fc\u8364 ?x", "ПрÈx".replace("È", "ü€")),
    "unicode without fallback": (r"\uc0\u1055\u1088 x", "Прx"),
    "unicode with two bytes of fallback": (r"{\uc2\u26085\'93\'fa\u26412 ??}z", "日本z"),
    "unicode beyond 16 bits": (r"\u-10179?\u-8704? \u128512?", "😀 😀"),
    "unicode that is outside of the code page": (r"a \u10132?\u770? b", "a ➔\u0302 b"),
    "unicode before a paragraph": (r"caf\u233\par next", "café\n\nnext"),
    "hidden and deleted": (r"a{\v no}b{\deleted no}c\v no\v0 d", "abcd"),
    "headers, pictures and objects": (
        r"{\header no}{\footer no \chpgn}a{\pict\wmetafile8 010203ff}{\*\shppict{\pict 00}}"
        r"{\object{\*\objdata 0102}{\result shown}}{\*\unknown no{\b no}}b",
        "ashownb",
    ),
    "binary": ("a{\\pict\\bin5 \\{}}x}b", "ab"),
    "headings": (
        r"\pard\s1 Tides\par\pard\s2 Ebb\par\pard\outlinelevel2 Low\par\pard Text\par",
        "# Tides\n\n## Ebb\n\n### Low\n\nText",
    ),
    "lists": (
        r"Before\par {\listtext\f3 \'b7\tab}\ilvl0 one\par {\listtext\f3\'b7\tab}two\par"
        r"{\listtext o\tab}\ilvl1 deep\par\pard {\pntext 1.\tab}first\par{\pntext 2.\tab}second\par",
        "Before\n\n- one\n- two\n  - deep\n1. first\n2. second",
    ),
    "table": (
        rf"Before\par{ROW}Name\cell Age\cell\row{ROW}Ann|e\cell 3\par 1\cell\row\pard After",
        "Before\n\n| Name | Age |\n| --- | --- |\n| Ann\\|e | 3<br>1 |\n\nAfter",
    ),
    "merged cells": (
        rf"{ROW}a\cell b\cell\row{ROW}c\cell d\cell\row"
        r"\trowd\clvmrg\cellx1000\cellx2000 \pard\intbl\cell e\cell\row\pard",
        "| a | b |\n| --- | --- |\n| c | d |\n|  | e |",
    ),
    "nested table": (
        rf"{ROW}a\cell b\cell\row\trowd\cellx1\cellx2\pard\intbl\itap2 x\nestcell y\nestcell"
        r"{\*\nesttableprops\trowd\nestrow}{\nonesttables\par no}\pard\intbl\itap1 z\cell w\cell\row\pard",
        "| a | b |\n| --- | --- |\n| x \\| y<br>z | w |",
    ),
    "link": (
        r'See {\field{\*\fldinst{HYPERLINK "https://example.org/a"}}{\fldrslt{\ul the page}}}, {\field{\*\fldinst PAGE}{\fldrslt 7}}.',
        "See [the page](https://example.org/a), 7.",
    ),
    "footnote": (
        r"Word{\super\chftn{\footnote\pard\plain{\super\chftn} A note\par of two lines.}} goes on.",
        "Word[^1] goes on.\n\n[^1]: A note of two lines.",
    ),
    "shape": (r"a{\shp{\*\shpinst{\sp{\sn x}{\sv y}}{\shptxt boxed\par}}}b", "aboxed\n\nb"),
    "unknown words": (r"\nosuch-12 a\x1 b\'zzc", "abzzc"),
    "symbols of a font": (r"\u-3913? {\f3 \u61623?}", "• •"),
}  # fmt: skip


@pytest.fixture
def rtf(tmp_path: Path) -> Read:
    return reader(tmp_path, "rtf")


@pytest.mark.parametrize("name", TEXTS)
def test_texts(rtf: Read, name: str) -> None:
    content, expected = TEXTS[name]
    document = rtf((HEAD + content + "}").encode("latin-1"))
    assert document.kind is DocumentKind.WORD
    assert document.text == expected
    assert not document.warnings


@pytest.mark.parametrize(
    ("head", "text"),
    [(r"\mac", "é"), (r"\pc", "Ä"), (r"\pca", "Ä"), (r"\ansi\ansicpg1251", "Ћ"), (r"\ansi", "Ž")],
)
def test_code_pages_of_documents(rtf: Read, head: str, text: str) -> None:
    assert rtf(rf"{{\rtf1{head} \'8e}}").text == text


def test_the_title_is_its_information(rtf: Read) -> None:
    document = rtf(HEAD + r"{\info{\title Tides of \u1055?}{\author Ann}{\creatim\yr2026}}text}")
    assert (document.title, document.text) == ("Tides of П", "text")


def test_damaged_files(rtf: Read) -> None:
    assert warned(rtf(HEAD + "cut here{\\b in a gro")) == ["damaged"]
    assert rtf(HEAD + "a}}}b").text == "a"
    assert warned(rtf(HEAD + "}")) == ["empty"]
    for content in ("", "text", "{\\html"):
        with pytest.raises(ExtractionError) as raised:
            rtf(content)
        assert raised.value.fault is ExtractionFault.DAMAGED


@pytest.mark.parametrize("size", HOSTILE)
@pytest.mark.parametrize(
    "piece",
    ["{", "{}", "}", "\\", "\\'", "\\u1", "\\u1?", "a\\par ", "{\\field{\\fldrslt ", "\\cell ", "\\row ", "\\row  ",
     "\\intbl a\\cell\\row ", "{\\footnote ", "{\\listtext a}", "{\\*\\x ", "\\bin0 ", "\\nestcell\\nestrow ",
     "{\\fonttbl{\\f1 ", "\\trowd\\clvmrg\\cellx1 ", "{\\listtext -}a\\par "],
)  # fmt: skip
def test_hostile_files_take_time_that_grows_with_them(rtf: Read, piece: str, size: int) -> None:
    begins = time.process_time()
    rtf(HEAD + piece * (size // len(piece)))
    assert time.process_time() - begins < MOST_SECONDS
