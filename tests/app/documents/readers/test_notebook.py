"""Jupyter notebooks as Markdown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.documents.source import ExtractionError, ExtractionFault
from app.domain.documents import DocumentKind
from text_files import Read, reader, warned


@pytest.fixture
def notebook(tmp_path: Path) -> Read:
    return reader(tmp_path, "notebook")


def _code(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source.splitlines(keepends=True), "outputs": outputs}


def _four(*cells: dict[str, Any]) -> str:
    metadata = {"language_info": {"name": "python"}, "title": "Tides"}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells})


def test_cells_and_outputs_of_format_four(notebook: Read) -> None:
    table = "<div><style>x</style><table><tr><th></th><th>a</th></tr><tr><th>0</th><td>1</td></tr></table></div>"
    document = notebook(
        _four(
            {"cell_type": "markdown", "source": ["# Tides\n", "Some *text*."]},
            _code("print(1)\n", {"output_type": "stream", "text": ["1\n", "2\n"]}),
            _code(
                "plot()",
                {
                    "output_type": "display_data",
                    "data": {"image/png": "iVBOR" * 99, "text/plain": ["<Figure>"]},
                },
            ),
            _code(
                "frame",
                {
                    "output_type": "execute_result",
                    "data": {"text/html": table, "text/plain": "   a\n0  1"},
                },
            ),
            _code(
                "1 / 0",
                {
                    "output_type": "error",
                    "ename": "ZeroDivisionError",
                    "evalue": "division by zero",
                    "traceback": [
                        "\x1b[31mTraceback\x1b[0m",
                        "ZeroDivisionError: division by zero",
                    ],
                },
            ),
            _code(""),
            {"cell_type": "raw", "source": "raw text"},
        )
    )
    assert document.kind is DocumentKind.NOTEBOOK
    assert document.title == "Tides"
    assert document.text == (
        "# Tides\nSome *text*.\n\n```python\nprint(1)\n```\n\nOutput:\n\n```\n1\n2\n```\n\n"
        "```python\nplot()\n```\n\nOutput:\n\n```\n<Figure>\n```\n\n"
        "```python\nframe\n```\n\nOutput:\n\n|  | a |\n| --- | --- |\n| 0 | 1 |\n\n"
        "```python\n1 / 0\n```\n\nError:\n\n```\nTraceback\nZeroDivisionError: division by zero\n```\n\n"
        "raw text"
    )


def test_format_three(notebook: Read) -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Head"]},
        {
            "cell_type": "code",
            "language": "python",
            "input": ["x = 1\n", "x"],
            "outputs": [
                {"output_type": "pyout", "text": ["1"]},
                {"output_type": "pyerr", "ename": "E", "evalue": "v", "traceback": []},
            ],
        },
    ]
    content = json.dumps({"nbformat": 3, "metadata": {}, "worksheets": [{"cells": cells}]})
    assert notebook(content).text == (
        "## Head\n\n```python\nx = 1\nx\n```\n\nOutput:\n\n```\n1\n```\n\nError:\n\n```\nE: v\n```"
    )


def test_a_progress_bar_is_what_it_ends_with(notebook: Read) -> None:
    output = {"output_type": "stream", "text": "0%\r50%\r100%\ndone\r\n"}
    assert notebook(_four(_code("go()", output))).text.endswith("```\n100%\ndone\n```")


def test_a_long_output_is_shortened_in_its_middle(notebook: Read) -> None:
    output = {"output_type": "stream", "text": "a" * 50_000 + "end"}
    text = notebook(_four(_code("go()", output))).text
    assert "[… 30003 characters …]" in text
    assert text.endswith("aend\n```")


def test_code_with_fences(notebook: Read) -> None:
    assert notebook(_four(_code("'''\n```\n'''"))).text == "````python\n'''\n```\n'''\n````"


@pytest.mark.parametrize("content", ["", "[1]", "{", '"a"', '{"cells": [', "[" * 100_000])
def test_what_is_no_notebook_is_damaged(notebook: Read, content: str) -> None:
    with pytest.raises(ExtractionError) as raised:
        notebook(content)
    assert raised.value.fault is ExtractionFault.DAMAGED


@pytest.mark.parametrize(
    "cells", [[], [1, None], [{"cell_type": "code", "outputs": [3, {"data": []}]}], [{"source": 5}]]
)
def test_cells_of_other_shapes_are_passed_over(notebook: Read, cells: list[Any]) -> None:
    assert warned(notebook(json.dumps({"nbformat": 4, "cells": cells}))) == ["empty"]
