"""Word documents written from Markdown: read by python-docx, and by our own reader."""

from __future__ import annotations

import random
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


@pytest.mark.slow
def test_python_docx_reads_it() -> None:
    docx = pytest.importorskip("docx")
    found = docx.Document(BytesIO(word_document(TEXT)))
    styles = {each.text: each.style.name for each in found.paragraphs}
    assert styles["Report & more"].lower() == "heading 1"
    assert styles["A quote."] == "Quote"
    table = [[cell.text for cell in row.cells] for row in found.tables[0].rows]
    assert table == [["Name", "Sum"], ["Ada", "3"], ["Bo & Co", "4"]]
