"""Texts, code, logs, Markdown and JSON as they are read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from app.documents.source import MOST_CHARACTERS, ExtractionError, ExtractionFault
from app.domain.documents import DocumentKind, PageUnit
from text_files import HOSTILE, MOST_SECONDS, Read, reader, warned


@pytest.fixture
def text(tmp_path: Path) -> Read:
    return reader(tmp_path, "text")


@pytest.fixture
def markdown(tmp_path: Path) -> Read:
    return reader(tmp_path, "markdown")


@pytest.fixture
def json_text(tmp_path: Path) -> Read:
    return reader(tmp_path, "json")


LOG = "".join(f"2026-11-27 12:00:{at:02} INFO started worker {at}\n" for at in range(8))
CODE = 'int main(void) {\n  puts("a");\n  return 0;\n}\n// end\n'
PROSE = "One line.\nAnother one; it ends here.\nA third one is longer than these.\nLast one.\n"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("notes.txt", PROSE, DocumentKind.TEXT),
        ("notes", PROSE, DocumentKind.TEXT),
        ("app.py", "print(1)\n", DocumentKind.CODE),
        ("Makefile", "all:\n\tcc x.c\n", DocumentKind.CODE),
        ("unknown", "#!/bin/sh\necho hi\n", DocumentKind.CODE),
        ("unknown", CODE, DocumentKind.CODE),
        ("data.xml", '<?xml version="1.0"?><a><b>1</b></a>', DocumentKind.CODE),
        ("unknown.dat", '<?xml version="1.0"?>\n<a/>', DocumentKind.CODE),
        ("config.yaml", "a: 1\n", DocumentKind.CODE),
        ("server.log", "started\n", DocumentKind.LOG),
        ("server.log.3", "started\n", DocumentKind.LOG),
        ("output", LOG, DocumentKind.LOG),
        (
            "access",
            '10.0.0.1 - - [27/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5\n' * 5,
            DocumentKind.LOG,
        ),
        ("messages", "Nov 27 10:00:00 host kernel: up\n" * 5, DocumentKind.LOG),
    ],
)
def test_kind_is_told_by_name_and_lines(
    text: Read, name: str, content: str, kind: DocumentKind
) -> None:
    document = text(content, name)
    assert document.kind is kind
    assert document.text == content
    assert document.unit is PageUnit.NONE


def test_line_ends_are_one_and_tabs_stay(text: Read) -> None:
    assert text("a\r\nb\rc\nd\te\n").text == "a\nb\nc\nd\te\n"
    assert text("one\rtwo\rthree").text == "one\ntwo\nthree"


def test_form_feeds_divide_pages_of_text_but_not_of_code(text: Read) -> None:
    document = text("first\n\fsecond\nline\n\f\n", "rfc.txt")
    assert document.unit is PageUnit.PAGE
    assert [(page.label, page.text) for page in document.pages] == [
        ("1", "first"),
        ("2", "second\nline"),
    ]
    assert text("def a():\n    pass\n\f\ndef b(): pass\n", "a.py").unit is PageUnit.NONE


@pytest.mark.parametrize("content", ["", " \n\t\r\n ", "\ufeff", "\u3000\n"])
def test_nothing_to_read_is_said(text: Read, content: str) -> None:
    assert warned(text(content)) == ["empty"]


def test_a_line_of_megabytes_is_read(text: Read) -> None:
    content = "word " * 1_000_000
    assert text(content).text == content


def test_an_unsure_encoding_is_said(text: Read) -> None:
    assert warned(text(b"caf\xc3\xa9\ncaf\xe9\ngr\xc3\xbc\xc3\x9fe\n")) == ["unsure encoding"]


def test_declared_encodings_of_code_and_xml_count(text: Read) -> None:
    python = "# -*- coding: koi8-r -*-\nname = 'да'\n"
    assert text(python.encode("koi8-r"), "a.py").text == python
    xml = '<?xml version="1.0" encoding="iso-8859-2"?><a>ł</a>'
    assert text(xml.encode("iso-8859-2"), "a.xml").text == xml


def test_binary_data_is_no_text(text: Read) -> None:
    with pytest.raises(ExtractionError) as raised:
        text(bytes(range(256)) * 40)
    assert raised.value.fault is ExtractionFault.UNKNOWN


def test_escapes_of_terminals_are_left_out(text: Read) -> None:
    assert text("\x1b[32mok\x1b[0m done\n", "build.log").text == "ok done\n"


def test_entities_of_xml_are_not_expanded(text: Read) -> None:
    bomb = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "cc"><!ENTITY c "&b;&b;">]><a>&c;</a>'
    assert text(bomb, "bomb.xml").text == bomb


@pytest.mark.sweep
def test_a_long_log_is_cut_with_a_warning(text: Read, tmp_path: Path) -> None:
    line = b"2026-11-27 12:00:00 INFO a line of a log that repeats until the file is large\n"
    path = tmp_path / "document"
    begins = time.process_time()
    document = text(line * (200_000_000 // len(line)), "big.log")
    assert len(document.text) == MOST_CHARACTERS
    assert warned(document) == ["cut"]
    assert path.stat().st_size > 199_000_000
    assert time.process_time() - begins < 30


def test_markdown_is_kept_and_its_title_is_found(markdown: Read) -> None:
    content = "---\ntitle: 'My notes'\ntags: [a]\n---\n\n# Head\n\n| a | b |\n| - | - |\n"
    document = markdown(content, "a.md")
    assert (document.kind, document.text, document.title) == (
        DocumentKind.MARKDOWN,
        content,
        "My notes",
    )
    assert markdown("\n# Head #\n\ntext").title == "Head"
    assert markdown("text\n\n# Head").title == ""
    assert markdown("---\nnever closed").title == ""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{\n "a": 1\n}\n', '{\n "a": 1\n}\n'),
        ('{"a":1}\n{"a":2}\n', '{"a":1}\n{"a":2}\n'),
        (
            '{"a":1.10,"a":[1,2,3],"b":{"c":null}}',
            '{\n  "a": 1.10,\n  "a": [1,2,3],\n  "b": {"c":null}\n}',
        ),
        (
            '{"a":"\\u4e2d\\u00e9\\n\\u0041 \\ud83d\\ude00 \\\\u00e9"}',
            '{"a":"中é\\n\\u0041 😀 \\\\u00e9"}',
        ),
        ("[]", "[]"),
        ('[[],{"open": [1, 2', '[\n  [],\n  {\n    "open": [\n      1,\n      2'),
        ("[note] hello world", "[note] hello world"),
        ('"only text"', '"only text"'),
    ],
)
def test_json_is_as_it_is_but_for_one_line(json_text: Read, content: str, expected: str) -> None:
    document = json_text(content)
    assert document.kind is DocumentKind.JSON
    assert document.text == expected


@pytest.mark.parametrize("size", HOSTILE)
@pytest.mark.parametrize(
    "piece",
    ["[", '{"a":', '"\\"', "[1,", "\\u", '"', "{},", "a", "\\ud800", "[[1],", "[" * 50 + "]"],
)
def test_long_json_takes_time_that_grows_with_it(json_text: Read, piece: str, size: int) -> None:
    begins = time.process_time()
    json_text("[" + piece * (size // len(piece)))
    assert time.process_time() - begins < MOST_SECONDS
