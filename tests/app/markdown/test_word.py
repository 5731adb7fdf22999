"""Word documents written from Markdown: read by python-docx, and by our own reader."""

from __future__ import annotations

import random
import re
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from app.documents.readers import docx as reader
from app.documents.source import Source
from app.markdown.word import word_document

TEXT = """\
# Report & more

A *first* **paragraph** with `code` <tag> and a [link](https://example.org/a).

## Lists

- one
- two
  1. inner
  2. next

3. third
4. fourth

> A quote.

| Name | Sum |
|:-----|----:|
| Ada | 3 |
| Bo & Co | 4 |

```python
if a < b:
    print("x")
```
"""


def read(path: Path) -> str:
    return reader.read(Source(path)).text


def test_our_own_reader_finds_headings_lists_and_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    path.write_bytes(word_document(TEXT))
    text = read(path)
    assert "# Report & more" in text
    assert "## Lists" in text
    assert "A first paragraph with code <tag> and a link (https://example.org/a)." in text
    assert "- one" in text
    assert "Ada" in text
    assert "| Bo & Co | 4 |" in text
    assert "if a < b:" in text
    order = [text.index(word) for word in ("Report", "one", "inner", "third", "quote", "Ada")]
    assert order == sorted(order)


def test_the_same_text_gives_the_same_bytes() -> None:
    assert word_document(TEXT) == word_document(TEXT)


def test_any_characters_can_be_written_and_read(tmp_path: Path) -> None:
    chance = random.Random(3)
    letters = "ab <>&\"'\x00\x0b\x1f\ufffe\ud800\n#*-|`1.>\U0001f600\u0627"
    for at in range(60):
        path = tmp_path / f"{at}.docx"
        path.write_bytes(word_document("x" + "".join(chance.choices(letters, k=80))))
        assert read(path).startswith("x")


def test_what_is_written_from_right_to_left_says_so() -> None:
    arabic = "\u0645\u0631\u062d\u0628\u0627"
    text = f"# {arabic}\n\n**{arabic}** and\n\nEnglish {arabic}\n\n- {arabic}\n\n"
    text += f"| {arabic} | a |\n|---|---|\n| {arabic} | 1 |\n"
    with zipfile.ZipFile(BytesIO(word_document(text))) as package:
        found = package.read("word/document.xml").decode()
    paragraphs = re.findall("<w:p>.*?</w:p>", found)
    rtl = ["<w:bidi/>" in each for each in paragraphs if each != "<w:p/>"]
    assert rtl == [True, True, False, True, True, False, True, False]
    assert "<w:tblPr><w:bidiVisual/>" in found
    assert "<w:b/><w:bCs/><w:rtl/>" in found
    assert found.index("<w:numPr>") < found.index("<w:bidi/>", found.index("<w:numPr>"))
    with zipfile.ZipFile(BytesIO(word_document(TEXT))) as package:
        assert b"bidi" not in package.read("word/document.xml")


@pytest.mark.slow
def test_python_docx_reads_it() -> None:
    docx = pytest.importorskip("docx")
    found = docx.Document(BytesIO(word_document(TEXT)))
    styles = {each.text: each.style.name for each in found.paragraphs}
    assert styles["Report & more"].lower() == "heading 1"
    assert styles["A quote."] == "Quote"
    table = [[cell.text for cell in row.cells] for row in found.tables[0].rows]
    assert table == [["Name", "Sum"], ["Ada", "3"], ["Bo & Co", "4"]]
