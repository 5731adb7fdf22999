"""Thoughts and texts of an answer: which tags are some, and which are text."""

from __future__ import annotations

import pytest

from engine import Role, Turn, split_answer
from engine.frontend.template import split_thoughts


def pieces(text: str) -> list[str]:
    """The pieces of an answer: thoughts in brackets, with a "+" if they have not ended."""
    found = split_answer(text)
    assert "".join(piece.written for piece in found) == text
    return [
        f"({piece.text}{'' if piece.ends else '+'})" if piece.is_thought else piece.text
        for piece in found
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Yes.", ["Yes."]),
        ("<think>a</think>b", ["(a)", "b"]),
        ("\n <think>\na\n</think>\n\nb", ["(\na\n)", "\n\nb"]),
        ("<think>a", ["(a+)"]),
        # a second thought
        ("<think>a</think>b\n\n<think>c</think>\n\nd", ["(a)", "b\n\n", "(c)", "\n\nd"]),
        ("a\n<think>b</think>\nc", ["a\n", "(b)", "\nc"]),
        ("<think>a</think>\n<think>b</think>c", ["(a)", "\n", "(b)", "c"]),
        ("a\n<think>b", ["a\n<think>b"]),
        ("Use <think> and </think> here.", ["Use <think> and </think> here."]),
        # a lone tag at the end of thoughts
        ("a\n</think>\n\nb", ["(a\n)", "\n\nb"]),
        ("a.</think>\nb", ["(a.)", "\nb"]),
        ("<think>a</think>b\n</think>\nc", ["(a)", "b\n", "()", "\nc"]),
        ("It ends with </think>.", ["It ends with </think>."]),
        # tags written twice
        ("<think>\n<think>\na</think></think>\n\nb", ["(\na)", "()", "\n\nb"]),
        ("<think>a</think><think>b</think>c", ["(a)", "(b)", "c"]),
        ("</think>\n\nb", ["()", "\n\nb"]),
        # tags in code
        ("<think>what `</think>` does</think>b", ["(what `</think>` does)", "b"]),
        ("<think>a `b</think>\nc", ["(a `b)", "\nc"]),
        ("<think>a `b`</think>c `d`", ["(a `b`)", "c `d`"]),
        ("<think>\n```\nx = '</think>'\n```\n</think>b", ["(\n```\nx = '</think>'\n```\n)", "b"]),
        ("<think>\n```\nx\n</think>\nb", ["(\n```\nx\n)", "\nb"]),
        ("Use:\n```\n<think>\nx\n</think>\n```\n", ["Use:\n```\n<think>\nx\n</think>\n```\n"]),
        ("<think>a</think>\n```\n</think>\n```", ["(a)", "\n```\n</think>\n```"]),
        ("Close with `</think>`\nb", ["Close with `</think>`\nb"]),
    ],
)
def test_thoughts_are_told_from_text(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@pytest.mark.parametrize(
    ("text", "thoughts", "answer"),
    [
        ("Yes.", None, "Yes."),
        ("<think>\na\n</think>\n\nb", "a", "b"),
        ("a\n</think>\n\nb", "a", "b"),
        ("<think>a</think>b\n\n<think>c</think>\n\nd", "a\n\nc", "b\n\n\n\nd"),
        ("<think>a `</think>` b</think>c", "a `</think>` b", "c"),
    ],
)
def test_a_template_gets_thoughts_apart_from_text(
    text: str, thoughts: str | None, answer: str
) -> None:
    assert split_thoughts(Turn(Role.ASSISTANT, text)) == (thoughts, answer)
    assert split_thoughts(Turn(Role.USER, text)) == (None, text)
