"""Markdown parser: blocks of each construct, and streaming in pieces gives the same blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.markdown.blocks import (
    BOX,
    BULLET,
    TICKED,
    Block,
    Code,
    Heading,
    Paragraph,
    Rule,
    Run,
    Runs,
    Table,
)
from app.markdown.lines import LONGEST, Lines
from app.markdown.stream import OwnText, Reply, Stream, parse, to_html
from app.markdown.tail import tail_lines

PIECES = st.sampled_from(
    [
        "a", "b c ", "\n", "\n\n", "- ", "  - ", "1. ", "2) ", "> ", "```", "```py\n", "~~~",
        "| a | b |\n", "|---|:-:|\n", "| 1 | 2 |\n", "**", "*", "_", "`", "#", "# ", "---\n",
        "===\n", "    ", "\t", "[a]", "[a]: http://x.y\n", "(u)", "<br>", "$x$", "[ ] ", "![i](u)",
        "$$", "$$\n", "\\[", "\\]\n", "\\(", "\\) ", "$5 ",
        "\r", "\r\n", "word " * 8, "x" * (LONGEST + 500), "\x00", "\u202e", "😀", "<think>", " ",
    ]
)  # fmt: skip


def plain_text(runs: Runs) -> str:
    """The characters of the runs, without their styles."""
    return "".join(run.text for run in runs)


def text_of(block: Block) -> str:
    assert isinstance(block, Paragraph | Heading)
    return plain_text(block.runs)


@given(st.lists(PIECES, max_size=40), st.integers(1, 30), st.sampled_from([30, 60, 4000]))
def test_streaming_in_any_pieces_gives_the_same_blocks(
    parts: list[str], size: int, section: int
) -> None:
    text = "".join(parts)
    once = Stream(section)
    once.feed(text, last=True)
    stream = Stream(section)
    before: list[Block] = []
    for at in range(0, len(text), size):
        kept = stream.feed(text[at : at + size])
        assert stream.blocks[:kept] == before[:kept]
        before = list(stream.blocks)
    stream.feed("", last=True)
    assert stream.blocks == once.blocks


@pytest.mark.sweep
@given(st.lists(PIECES, max_size=30), st.integers(1, 12))
def test_streaming_in_any_pieces_gives_the_same_thoughts_and_answer(
    parts: list[str], size: int
) -> None:
    text = "<think>" + "".join(parts) + "</think>" + "".join(reversed(parts))
    once = Reply()
    once.feed(text, last=True)
    reply = Reply()
    for at in range(0, len(text), size):
        reply.feed(text[at : at + size])
    reply.feed("", last=True)
    assert reply.has_thoughts
    assert reply.thoughts.blocks == once.thoughts.blocks
    assert reply.body.blocks == once.body.blocks


def test_fence_indented_by_a_tab_does_not_end_a_code_block() -> None:
    stream = Stream()
    for piece in ("a\n", "```py\n", "\t```\n", "b"):
        stream.feed(piece)
    stream.feed("", last=True)
    code = stream.blocks[-1]
    assert isinstance(code, Code)
    assert (code.text, code.closed) == ("\t```\nb", False)


def test_inline_styles_become_runs() -> None:
    (block,) = parse("plain **bold *both*** `code` ~~gone~~ [site](https://a.b)")
    assert isinstance(block, Paragraph)
    assert block.runs == (
        Run("plain "),
        Run("bold ", bold=True),
        Run("both", bold=True, italic=True),
        Run(" "),
        Run("code", code=True),
        Run(" "),
        Run("gone", strike=True),
        Run(" "),
        Run("site", link="https://a.b"),
    )


def test_list_items_are_blocks_with_their_containers() -> None:
    blocks = parse("3. one\n   - inner\n4. two\n\n   again\n")
    markers = [[level.marker for level in block.place.path] for block in blocks]
    assert markers == [["3."], ["", BULLET], ["4."], [""]]
    assert [block.place.tight for block in blocks] == [False, True, True, False]


def test_task_items_have_boxes_instead_of_bullets() -> None:
    blocks = parse("- [x] done\n- [ ] open\n")
    assert [block.place.path[0].marker for block in blocks] == [TICKED, BOX]
    assert [text_of(block) for block in blocks] == ["done", "open"]


def test_empty_list_item_has_a_block_with_its_marker() -> None:
    first, second = parse("-\n- b\n")
    assert isinstance(first, Paragraph)
    assert first.runs == ()
    assert first.place.path[0].marker == second.place.path[0].marker == BULLET


def test_first_block_of_a_quote_begins_it() -> None:
    blocks = parse("> one\n>\n> two\n\n> other\n")
    assert [block.place.path[0].begins for block in blocks] == [True, False, True]


def test_table_has_alignments_header_and_rows() -> None:
    (table,) = parse("| a | b |\n|:-:|--:|\n| 1 | `x` |\n| 2 |\n")
    assert isinstance(table, Table)
    assert table.alignments == ("center", "right")
    assert [plain_text(cell) for cell in table.header] == ["a", "b"]
    assert [[plain_text(cell) for cell in row] for row in table.rows] == [["1", "x"], ["2", ""]]


@pytest.mark.parametrize(
    ("source", "closed"), [("```py\nx\n```\n", True), ("```py\nx\n", False), ("~~~\nx\n~~~", True)]
)
def test_unclosed_fence_is_a_code_block(source: str, closed: bool) -> None:
    (block,) = parse(source)
    assert isinstance(block, Code)
    assert block.text == "x"
    assert block.closed is closed


def test_code_in_a_list_is_a_block_of_the_item() -> None:
    _, code = parse("1. run\n\n   ```sh\n   ls\n   ```\n")
    assert isinstance(code, Code)
    assert (code.language, code.text, code.closed) == ("sh", "ls", True)
    assert len(code.place.path) == 1


def test_html_is_text_and_images_are_alt_text_and_address() -> None:
    blocks = parse("<script>alert(1)</script>\n\n![a tree](https://a.b/t.png)")
    assert text_of(blocks[0]) == "<script>alert(1)</script>"
    assert isinstance(blocks[1], Paragraph)
    assert plain_text(blocks[1].runs) == "a tree https://a.b/t.png"
    assert blocks[1].runs[-1].link == "https://a.b/t.png"


@pytest.mark.parametrize("address", ["javascript:alert(1)", "vbscript:x", "file:///etc/passwd"])
def test_dangerous_addresses_are_not_links(address: str) -> None:
    (block,) = parse(f"[x]({address})")
    assert isinstance(block, Paragraph)
    assert not any(run.link for run in block.runs)


def test_bare_addresses_become_links_without_trailing_punctuation() -> None:
    (block,) = parse("See https://a.b/c(d)_e. Or (https://x.y).")
    assert isinstance(block, Paragraph)
    assert [run.link for run in block.runs if run.link] == ["https://a.b/c(d)_e", "https://x.y"]


def test_link_definition_below_its_use_is_resolved_at_the_end() -> None:
    stream = Stream()
    for piece in ("See [the page][p].\n\n", "More.\n\n", "[p]: https://a.b\n"):
        stream.feed(piece)
    stream.feed("", last=True)
    first = stream.blocks[0]
    assert isinstance(first, Paragraph)
    assert Run("the page", link="https://a.b") in first.runs
    assert len(stream.blocks) == 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a **bo", "a bo"),
        ("a **bold*", "a bold"),
        ("a **", "a"),
        ("see [the pa", "see the pa"),
        ("see [the page](https://a", "see the page"),
        ("use `co", "use co"),
    ],
)
def test_unfinished_markup_does_not_flicker(text: str, shown: str) -> None:
    stream = Stream()
    stream.feed(text)
    assert text_of(stream.blocks[0]) == shown


@pytest.mark.parametrize("marker", ["-", "#", "```"[:2], "1", "2.", "- [", "=", ">", "|"])
def test_incomplete_marker_is_not_shown(marker: str) -> None:
    stream = Stream()
    stream.feed(f"Text.\n\n{marker}")
    assert [text_of(block) for block in stream.blocks] == ["Text."]


def test_partial_dash_does_not_turn_a_paragraph_into_a_heading() -> None:
    stream = Stream()
    stream.feed("Items:\n-")
    assert isinstance(stream.blocks[0], Paragraph)


def test_table_header_is_hidden_until_its_delimiter_row() -> None:
    assert tail_lines(["| a | b |"], "|--") == []
    assert tail_lines([], "| a |") == []


def test_source_returns_the_original_markdown() -> None:
    source = "# One\n\n- a\n- b\n\n```py\nx = 1\n```\n\n| a |\n|---|\n| 1 |"
    stream = Stream()
    stream.feed(source, last=True)
    assert stream.source(stream.blocks[0].place.start, stream.blocks[-1].place.end) == source
    code = next(block for block in stream.blocks if isinstance(block, Code))
    assert stream.source(code.place.start, code.place.end) == "```py\nx = 1\n```"


def test_split_long_line_keeps_its_text() -> None:
    line = "y" * (3 * LONGEST + 7)
    lines = Lines()
    lines.add(line, last=True)
    assert len(lines.complete) > 1
    assert lines.source(0, len(lines.complete)) == line
    (code,) = parse(f"```\n{line}\n```")
    assert isinstance(code, Code)
    assert code.text == line


@pytest.mark.parametrize(
    ("sort", "count"),
    [("item", 500), ("row", 500), ("word", 8000), ("line", 2000), ("quote", 300)],
)
def test_split_long_blocks_keep_their_content(sort: str, count: int) -> None:
    make = {
        "item": "".join(f"{n}. item {n}\n" for n in range(1, count + 1)),
        "row": "| n |\n|---|\n" + "".join(f"| row {n} |\n" for n in range(1, count + 1)),
        "word": " ".join(f"word{n}" for n in range(1, count + 1)),
        "line": "```\n" + "".join(f"line {n}\n" for n in range(1, count + 1)) + "```\n",
        "quote": "".join(f"> quote {n}\n>\n" for n in range(1, count + 1)),
    }
    blocks = parse(make[sort])
    match sort:
        case "item":
            assert [block.place.path[0].marker for block in blocks] == [
                f"{n}." for n in range(1, count + 1)
            ]
        case "row":
            (table,) = blocks
            assert isinstance(table, Table)
            assert plain_text(table.rows[-1][0]) == f"row {count}"
            assert len(table.rows) == count
        case "word":
            assert all(block.place.joined for block in blocks[1:])
            assert " ".join(map(text_of, blocks)).split() == make[sort].split()
        case "line":
            (code,) = blocks
            assert isinstance(code, Code)
            assert code.text.count("\n") == count - 1
        case _:
            assert len(blocks) == count
            assert sum(block.place.path[0].begins for block in blocks) == 1


@pytest.mark.parametrize("opening", [">", "- ", "1. ", "> - "])
def test_deep_nesting_loses_no_text(opening: str) -> None:
    blocks = parse(opening * 300 + "deep")
    assert any("deep" in text_of(block) for block in blocks)


def test_bidi_overrides_are_replaced() -> None:
    code, paragraph = parse("```\na\u202eb\u2066\n```\n\na\u202eb")
    assert isinstance(code, Code)
    assert code.text == "a\ufffdb\ufffd"
    assert text_of(paragraph) == "a\ufffdb"


def test_control_characters_are_replaced() -> None:
    blocks = parse("a\x00b\x1b[0m \u2028next\u2029last \ud800")
    assert [text_of(block) for block in blocks] == ["a\ufffdb\ufffd[0m next last \ufffd"]


def test_thoughts_are_separated_from_the_answer() -> None:
    reply = Reply()
    for piece in ("<th", "ink>\nlet me", " see</thi"):
        reply.feed(piece)
    assert reply.thinking
    assert [text_of(block) for block in reply.thoughts.blocks] == ["let me see"]
    reply.feed("nk>\n\nYes.")
    assert not reply.thinking
    assert [text_of(block) for block in reply.body.blocks] == ["Yes."]


def test_an_answer_that_only_mentions_the_tag_has_no_thoughts() -> None:
    reply = Reply()
    reply.feed("Use <think> tags.", last=True)
    assert not reply.has_thoughts


def test_user_text_keeps_lines_and_parses_only_fences() -> None:
    own = OwnText("# not a heading\n* star\n\n```js\nx\n```\nend")
    first, code, last = own.blocks
    assert text_of(first) == "# not a heading\n* star"
    assert isinstance(code, Code)
    assert (code.language, code.text) == ("js", "x")
    assert text_of(last) == "end"
    assert own.source(0, 7) == "# not a heading\n* star\n\n```js\nx\n```\nend"


def test_rules_and_headings() -> None:
    blocks = parse("Title\n=====\n\n---\n\n###### six")
    assert [type(block) for block in blocks] == [Heading, Rule, Heading]
    assert [block.level for block in blocks if isinstance(block, Heading)] == [1, 6]


def test_html_for_the_clipboard_has_no_raw_html_and_no_pictures() -> None:
    html = to_html("<b>x</b> ![i](https://a.b/c.png) **y**")
    assert "<b>" not in html
    assert "<img" not in html
    assert "<strong>y</strong>" in html


def test_update_changes_only_the_last_blocks_of_a_long_answer() -> None:
    section = "## T\n\nSome **text** in a paragraph with `code`.\n\n- a\n- b\n\n"
    stream = Stream()
    stream.feed(section * 200)
    assert len(stream.blocks) == 200 * 4
    for at in range(0, len(section), 7):
        kept = stream.feed(section[at : at + 7])
        assert kept >= 200 * 4 - 4
