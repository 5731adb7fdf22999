"""Parsed blocks as the plain text that is read aloud: without code, marks and addresses."""

from __future__ import annotations

from collections.abc import Sequence

from app.markdown.blocks import Block, Heading, Paragraph, Runs, Table


def to_speech(blocks: Sequence[Block]) -> str:
    """A line for each paragraph, heading and table row; code blocks and formulas are left out."""
    lines: list[str] = []
    for block in blocks:
        match block:
            case Paragraph() | Heading():
                lines.append(_words(block.runs))
            case Table():
                rows = (block.header, *block.rows)
                lines += [", ".join(filter(None, map(_words, row))) for row in rows]
            case _:
                pass
    return "\n".join(line for line in lines if line)


def _words(runs: Runs) -> str:
    return " ".join("".join(run.text for run in runs).split())
