"""Fences of code in Markdown."""

from __future__ import annotations

import pytest

from app.domain.fences import closed, fences
from app.markdown.blocks import Code
from app.markdown.stream import parse


@pytest.mark.parametrize(
    "text",
    [
        "```\ncode", "~~~~ python\n```\ncode\n```", "words\n\n```py\na\n```\n\n```\nb",
        "````\n```\n", "   ```\ncode\n", "```",
    ],
)  # fmt: skip
def test_code_that_does_not_end_is_closed(text: str) -> None:
    assert fences(text)[-1][1]
    made = closed(text)
    assert not fences(made)[-1][1]
    [*_, last] = parse(f"{made}\n\n# Behind")
    assert not isinstance(last, Code)


@pytest.mark.parametrize("text", ["", "words", "```\na\n```", "`a`", "~~~\n```\n~~~\n\nb"])
def test_a_complete_text_stays(text: str) -> None:
    assert closed(text) == text
