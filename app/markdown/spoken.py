"""Parsed blocks as the plain text that is read aloud: without code, marks, addresses, references."""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.markdown.blocks import Block, Heading, Paragraph, Runs, Table, passage_number

_REFERENCES = re.compile(" ?\0(?: ?[,;\u2013-]? ?\0)*")  # to passages


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
    text = "".join("\0" if passage_number(run.link) else run.text for run in runs)
    return _REFERENCES.sub("", " ".join(text.split())).strip()
