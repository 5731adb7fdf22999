"""Reader of Jupyter notebooks, formats 3 and 4: text, code and what it printed; no pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from app.documents.decoding import clean, load
from app.documents.html_markdown import fenced, markdown
from app.documents.source import ExtractionError, ExtractionFault, Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, Warned

_MOST_CHARACTERS = 150_000_000  # of the file, pictures included: it is parsed at once
_LONGEST_OUTPUT = 20_000  # characters of one output; of a longer one, its ends


def read(source: Source) -> Document:
    """The Markdown of a notebook. Raises ExtractionError if it is none."""
    if source.size > _MOST_CHARACTERS:
        raise ExtractionError(ExtractionFault.TOO_LARGE, f"{source.size} bytes")
    decoded = load(source, most=_MOST_CHARACTERS)
    try:
        notebook = _dict(json.loads(decoded.text))
    except (ValueError, RecursionError) as error:
        raise ExtractionError(ExtractionFault.DAMAGED, str(error)[:200]) from None
    if not notebook:
        raise ExtractionError(ExtractionFault.DAMAGED, "no notebook")
    language = _language(notebook)
    blocks = [block for cell in _cells(notebook) for block in _blocks(cell, language)]
    text = clean("\n\n".join(block for block in blocks if block.strip()))
    warnings = [each for each in decoded.warnings if each.warning is not DocumentWarning.EMPTY]
    if not text:
        warnings.append(Warned(DocumentWarning.EMPTY))
    page = Page("", text)
    title = _text(_dict(notebook.get("metadata")).get("title"))
    return Document(DocumentKind.NOTEBOOK, (page,), title=title, warnings=tuple(warnings))


def _dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _text(value: Any) -> str:
    """A text that may be a list of its lines."""
    if isinstance(value, list):
        return "".join(each for each in _list(value) if isinstance(each, str))
    return value if isinstance(value, str) else ""


def _language(notebook: dict[str, Any]) -> str:
    metadata = _dict(notebook.get("metadata"))
    found = _dict(metadata.get("language_info")).get("name")
    found = found or _dict(metadata.get("kernelspec")).get("language")
    return _text(found)[:20].lower() if _text(found).isprintable() else ""


def _cells(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells; in format 3 they are in worksheets."""
    for cell in _list(notebook.get("cells")):
        yield _dict(cell)
    for sheet in _list(notebook.get("worksheets")):
        for cell in _list(_dict(sheet).get("cells")):
            yield _dict(cell)


def _blocks(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _text(cell.get("source", cell.get("input"))).strip("\n")
    match cell.get("cell_type"):
        case "code":
            if source.strip():
                yield fenced(source, _text(cell.get("language")) or language)
            for output in _list(cell.get("outputs")):
                yield _output(_dict(output))
        case "heading":
            level = cell.get("level")
            yield "#" * (level if isinstance(level, int) and 1 <= level <= 6 else 1) + " " + source
        case _:
            yield source


def _output(output: dict[str, Any]) -> str:
    if output.get("output_type") in ("error", "pyerr"):
        trace = "\n".join(each for each in _list(output.get("traceback")) if isinstance(each, str))
        name = f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"
        return _printed(trace if name.strip(": ") in clean(trace) else f"{trace}\n{name}", "Error")
    data = _dict(output.get("data")) or output
    html = _text(data.get("text/html", data.get("html")))
    if "<table" in html:
        return "Output:\n\n" + markdown(html).text
    if text := _text(data.get("text/markdown")):
        return "Output:\n\n" + text.strip("\n")
    text = _text(data.get("text/plain", data.get("text")))
    if not text and html:
        return "Output:\n\n" + markdown(html).text
    return _printed(text or _text(data.get("text/latex", data.get("latex"))), "Output")


def _printed(text: str, label: str) -> str:
    text = clean(_overwritten(text)).strip("\n")
    if not text.strip():
        return ""
    if len(text) > _LONGEST_OUTPUT:
        half = _LONGEST_OUTPUT // 2
        text = f"{text[:half]}\n[\u2026 {len(text) - 2 * half} characters \u2026]\n{text[-half:]}"
    return f"{label}:\n\n{fenced(text)}"


def _overwritten(text: str) -> str:
    """What a terminal shows last of each line that was written again, such as a progress bar."""
    if "\r" not in text:
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
