"""Readers of text-like formats end with a document or an error, whatever the bytes."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.documents.source import ExtractionError
from app.domain.documents import Document
from text_files import reader

SEEDS = {
    "text": "Grüße\tund\fmehr\r\n日本\x1b[1m".encode(),
    "markdown": b"---\ntitle: x\n---\n# a\n\n| a | b |\n|---|---|\n",
    "table": b'sep=;\nName;"Age;\n""x";1,5\n\\"a\\";2\n\x00;|\t',
    "json": b'{"a":[1,{"b":"\\u00e9\\ud83d\\ude00\\""}],"c":null,"d":"x',
    "html": (
        b'<!doctype html [ ]><meta charset=utf-8><title>t</title><nav>n</nav><main><h1>a<ul><li>b<ol '
        b'start=9><dl><dt><dd><table><tr><th rowspan=2 colspan=3>c<td><table><tr><td>d</table><pre><code '
        b'class=language-x>e</code></pre><a href="http://x/y?z">f</a><math alttext=g></math><ruby>h<rt>i'
        b'<blockquote><q>j<s>k</s><sup>2</sup>&eacute;&#x41;<!--c--><![CDATA[x]]><p hidden>l<div class='
        b'"cookie-banner">m</div><frame src=n><input type=checkbox>'
    ),
    "email": (
        b"From: a@b.c\r\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
        b"--b\r\nContent-Type: text/plain; format=flowed\r\nContent-Transfer-Encoding: base64\r\n\r\nR3LDvMOf\r\n"
        b"--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\ny\r\n--b\r\nContent-Disposition: attachment;"
        b" filename*=utf-8''%c3\r\n\r\nz\r\n--b--\r\n"
    ),
    "notebook": (
        b'{"nbformat":4,"cells":[{"cell_type":"code","source":["a"],"outputs":[{"output_type":"error",'
        b'"traceback":["x"]},{"data":{"text/html":"<table>"}}]}],"worksheets":[{"cells":[]}]}'
    ),
    "subtitles": (
        b"1\n00:00:01,000 --> 00:00:02,000\n<v Ann>a{\\i1}b\n\n{1}{25}x|y\n[10][20]z\n[Events]\n"
        b"Format: Start, End, Text\nDialogue: 0:00:01.00,0:00:02.00,a\\Nb\n"
    ),
    "rtf": (
        b"{\\rtf1\\ansi\\ansicpg932{\\fonttbl{\\f1\\fcharset128 x;}}{\\stylesheet{\\s1 heading 1;}}{\\info{\\title "
        b"t}}\\s1 a\\u-10179?\\'83\\'41\\par\\trowd\\cellx1\\intbl b\\cell\\row\\pard{\\field{\\*\\fldinst "
        b'HYPERLINK "x"}{\\fldrslt y}}{\\footnote z}{\\listtext -}c\\par\\bin3 xxx}'
    ),
}  # fmt: skip


def _book() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as package:
        package.writestr("mimetype", "application/epub+zip")
        package.writestr("META-INF/container.xml", '<rootfile full-path="a.opf"/>')
        package.writestr(
            "a.opf",
            '<item id="a" href="a.xhtml"/><item id="n" href="n.xhtml" properties="nav"/>'
            '<itemref idref="a"/><itemref idref="n"/>',
        )
        package.writestr("a.xhtml", "<h1 id='x'>a</h1>b")
        package.writestr(
            "n.xhtml", '<nav epub:type="toc"><ol><li><a href="a.xhtml#x">A</a></ol></nav>'
        )
    return made.getvalue()


SEEDS["epub"] = _book()
QUICK = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def _ends_well(folder: Path, module: str, data: bytes) -> None:
    try:
        document = reader(folder, module)(data)
    except ExtractionError:
        return
    assert isinstance(document, Document)
    assert document.pages
    document.text.encode()  # no half of a surrogate pair
    assert "\0" not in document.text


@pytest.mark.parametrize("module", SEEDS)
@QUICK
@given(data=st.binary(max_size=400))
def test_random_bytes(tmp_path: Path, module: str, data: bytes) -> None:
    _ends_well(tmp_path, module, data)


@pytest.mark.parametrize("module", SEEDS)
@QUICK
@given(data=st.data())
def test_pieces_of_documents_in_any_order(tmp_path: Path, module: str, data: st.DataObject) -> None:
    seed = SEEDS[module]
    made = bytearray()
    for _ in range(data.draw(st.integers(1, 4))):
        begins = data.draw(st.integers(0, len(seed)))
        made += seed[begins : data.draw(st.integers(begins, len(seed)))]
        made += data.draw(st.binary(max_size=4))
    _ends_well(tmp_path, module, bytes(made))


@pytest.mark.parametrize("module", SEEDS)
def test_a_document_cut_anywhere(tmp_path: Path, module: str) -> None:
    seed = SEEDS[module]
    for end in range(0, len(seed), max(1, len(seed) // 60)):
        _ends_well(tmp_path, module, seed[:end])


@pytest.mark.parametrize("module", SEEDS)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-be", "utf-8-sig"])
def test_documents_in_wide_encodings(tmp_path: Path, module: str, encoding: str) -> None:
    _ends_well(tmp_path, module, SEEDS[module].decode("latin-1").encode(encoding))
