"""Copying a selection: the clipboard has what the screen shows, from the same parsed blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.markdown.blocks import BOX, TICKED, Code
from app.markdown.stream import parse
from app.ui.blocks.style import CODE_HEADER
from app.ui.transcript.view import Transcript
from cmark_oracle import structure_of_blocks, structure_of_html, without_spaces
from transcript_driver import clipboard, drag, message, part_point

EXAMPLES: list[str] = json.loads(
    (Path(__file__).parents[2] / "markdown" / "examples.json").read_text(encoding="utf-8")
)


def html() -> str:
    return QGuiApplication.clipboard().mimeData().html()


def select(view: Transcript, first: int, last: int) -> None:
    """Select the parts of the first message from one to another, and copy."""
    parts = view.stack.views[0].parts
    view.selection.set((0, first, 0), (0, last, parts[last].view.length))
    view.copy()


def test_code_dragged_over_is_copied_without_fences_and_indentation(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages(
        [message(1, "1. Run:\n\n   ```sh\n   cd src\n   make all\n   ```\n\n2. Done.")]
    )
    (number,) = [n for n, part in enumerate(view.stack.views[0].parts)
                 if isinstance(part.view.block, Code)]  # fmt: skip
    start = part_point(view, 0, number, 8, CODE_HEADER + 6)
    drag(qtbot, view, start, part_point(view, 0, number, 600, CODE_HEADER + 28))
    qtbot.keyClick(view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert clipboard() == "cd src\nmake all"
    assert html() == '<pre><code class="language-sh">cd src\nmake all\n</code></pre>'


def test_code_dragged_over_to_the_edges_of_its_neighbours_is_code(view: Transcript) -> None:
    view.set_messages([message(1, "Run:\n\n```sh\nmake\n```\n\nDone.")])
    parts = view.stack.views[0].parts
    view.selection.set((0, 0, parts[0].view.length), (0, 2, 0))
    view.copy()
    assert clipboard() == "make"
    assert html() == '<pre><code class="language-sh">make\n</code></pre>'


def test_a_selection_is_searched_for_as_it_is_shown(view: Transcript) -> None:
    view.set_messages([message(1, "## The **bold** `word`")])
    view.select_all()
    assert view.selected_text() == "The bold word"
    view.copy()
    assert clipboard() == "## The **bold** `word`"


def test_items_of_an_inner_list_are_a_list(view: Transcript) -> None:
    view.set_messages(
        [message(1, "Plan:\n\n- outer\n    - inner **one**\n    - inner two\n- last")]
    )
    select(view, 2, 3)
    assert clipboard() == "- inner **one**\n- inner two"
    assert html() == "<ul>\n<li>inner <strong>one</strong></li>\n<li>inner two</li>\n</ul>"
    select(view, 1, 4)
    assert clipboard() == "- outer\n  - inner **one**\n  - inner two\n- last"


def test_reference_links_keep_their_address(view: Transcript) -> None:
    view.set_messages([message(1, "See [the page][p].\n\nMore.\n\n[p]: https://a.b/c")])
    select(view, 0, 1)
    assert clipboard() == "See [the page](https://a.b/c).\n\nMore."
    assert '<a href="https://a.b/c">the page</a>' in html()


def test_line_breaks_written_as_html_are_line_breaks(view: Transcript) -> None:
    view.set_messages([message(1, "a<br>b\n\n| x<br>y |\n|---|\n| 1 |")])
    select(view, 0, 1)
    assert "<p>a<br>\nb</p>" in html()
    assert "x<br>\ny" in html()
    assert "&lt;" not in html()
    assert clipboard() == "a  \nb\n\n| x<br>y |\n|---|\n| 1 |"


def test_a_task_list_and_a_quote_keep_their_marks(view: Transcript) -> None:
    source = "> 3. [x] done\n> 4. [ ] open\n>\n>    more"
    view.set_messages([message(1, source)])
    view.select_all()
    view.copy()
    assert clipboard() == source
    assert '<ol start="3">' in html()
    assert f"<li>{TICKED} done</li>" in html()


def test_a_selection_that_begins_in_an_item_leaves_out_its_marker(view: Transcript) -> None:
    view.set_messages([message(1, "- one **two**\n- three\n- four five")])
    view.selection.set((0, 0, 4), (0, 2, 4))
    view.copy()
    assert clipboard() == "**two**\n- three\n- four"
    assert "<p><strong>two</strong></p>\n<ul>\n<li>three</li>\n<li>four</li>\n</ul>" in html()


def test_the_text_of_the_user_is_copied_as_typed(view: Transcript) -> None:
    typed = "# no *heading*\n1. a\n\n\n```py\nx\n```\n" + "y" * 9000
    view.set_messages([message(1, typed, is_user=True), message(2, "answer")])
    view.selection.set((0, 0, 0), (0, 4, view.stack.views[0].parts[4].view.length))
    view.copy()
    assert clipboard() == typed
    assert "# no *heading*<br>\n1. a" in html()


@pytest.mark.parametrize("part", range(8))
def test_the_clipboard_has_the_structure_of_the_screen(view: Transcript, part: int) -> None:
    for text in EXAMPLES[part::40]:
        view.set_messages([message(1, text)])
        view.select_all()
        if view.selection.empty:
            continue
        view.copy()
        shown = [each.view.block for each in view.stack.views[0].parts]
        copied = html().replace(f"<li>{BOX} ", "<li><input>")
        copied = copied.replace(f"<li>{TICKED} ", "<li><input checked>")
        assert structure_of_html(copied) == structure_of_blocks(shown), text
        if len(shown) > 1 or not isinstance(shown[0], Code):
            written = structure_of_blocks(parse(clipboard()))
            assert without_spaces(written) == without_spaces(structure_of_blocks(shown)), text
