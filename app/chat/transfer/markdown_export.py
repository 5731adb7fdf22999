"""A chat as Markdown: the shown branch, with a heading for each message."""

from __future__ import annotations

import json
from collections.abc import Iterable

from app.domain.chat_tree import ChatTree
from app.domain.document import Section, one_line, sections, when
from app.markdown.blocks import Heading, Place, Run
from app.markdown.export import to_markdown


def chat_markdown(tree: ChatTree) -> str:
    """A document with front matter, which most programs that read Markdown understand."""
    title = one_line(tree.title)
    front = ["---", f"title: {json.dumps(title, ensure_ascii=False)}"]
    if made := when(tree.created):
        front.append(f"date: {made}")
    pieces = ["\n".join([*front, "---"]), _heading(1, title), *map(_section, sections(tree))]
    return "\n\n".join(filter(None, pieces)) + "\n"


def chats_text(trees: Iterable[ChatTree]) -> str:
    """Whole chats for the clipboard."""
    return "\n".join(
        "\n\n".join(filter(None, map(_section, sections(tree)))) + "\n" for tree in trees
    )


def _section(section: Section) -> str:
    made = to_markdown(section.blocks, lambda number, _: f"[^{number}]")
    return "\n\n".join(filter(None, (_heading(2, section.heading), made)))


def _heading(level: int, words: str) -> str:
    return to_markdown([Heading(Place(0, 1), level, (Run(words),))]) if words else ""
