"""Markdown parser: blocks of each construct, and streaming in pieces gives the same blocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it.token import Token

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
from app.markdown.export import to_html, to_markdown
from app.markdown.inline import PARSER
from app.markdown.pieces import PIECE
from app.markdown.stream import PlainText, Reply, Stream, parse

PIECES = st.sampled_from(
    [
        "a", "b c ", "\n", "\n\n", "- ", "  - ", "1. ", "2) ", "> ", "```", "```py\n", "~~~",
        "| a | b |\n", "|---|:-:|\n", "| 1 | 2 |\n", "**", "*", "_", "`", "#", "# ", "---\n",
        "===\n", "    ", "\t", "[a]", "[a]: http://x.y\n", "(u)", "<br>", "$x$", "[ ] ", "![i](u)",
        "$$", "$$\n", "\\[", "\\]\n", "\\(", "\\) ", "$5 ",
        "\r", "\r\n", "word " * 8, "x" * 2500, "\x00", "\u202e", "😀", "<think>", " ",
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


@pytest.mark.parametrize(
    "text",
    [
        "a\n$$\n~~~$$",  # the fence is not complete, and the formula after all
        "a\n$$\n```$$\n> $$",
        "[a]: b\n$$\n```$$\n[a]",
        "x\n\n- [a]\n  $$\n  ```$$\n\n[a]: b\n",
        "a\n$$\n$$b\n$$c\nd",
    ],
)
def test_a_line_that_may_end_a_formula_changes_nothing_before_it_is_complete(text: str) -> None:
    stream, shown = Stream(), list[Block]()
    for at in range(len(text)):
        kept = stream.feed(text[at])
        assert stream.blocks[:kept] == shown[:kept]
        shown = list(stream.blocks)
        once = Stream()
        once.feed(text[: at + 1])
        assert shown == once.blocks
    stream.feed("", last=True)
    assert stream.blocks == parse(text)


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


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "vbscript:x",
        "file:///etc/passwd",
        "file:///C:/x.txt",
        "C:/x.txt",
        "c:x.exe",
        "C%3A/x.txt",
        "//computer/folder/x",
        "/&#92;computer/folder/x",
        "%5C%5Ccomputer/folder/x",
    ],
)
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


@pytest.mark.parametrize("start", ["", "> ", "- "])
def test_table_header_is_hidden_until_its_delimiter_row(start: str) -> None:
    before = "" if not start else f"{start}Text.\n{start[:1] if start == '> ' else ''}\n"
    for partial in ("| a |", "| a | b |\n", "| a | b |\n|", "| a | b |\n|--"):
        stream = Stream()
        indent = "  " if start == "- " else start
        stream.feed(before + partial.replace("| a", f"{indent if before else start}| a", 1))
        assert not any("a" in text_of(block) for block in stream.blocks)


def test_source_returns_the_original_markdown() -> None:
    source = "# One\n\n- a\n- b\n\n```py\nx = 1\n```\n\n| a |\n|---|\n| 1 |"
    stream = Stream()
    stream.feed(source, last=True)
    assert stream.source(stream.blocks[0].place.start, stream.blocks[-1].place.end) == source
    code = next(block for block in stream.blocks if isinstance(block, Code))
    assert stream.source(code.place.start, code.place.end) == "```py\nx = 1\n```"


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
    own = PlainText("# not a heading\n* star\n\n```js\nx\n```\nend")
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
    html = to_html(parse("<b>x</b> ![i](https://a.b/c.png) **y**"))
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


# --- long lines and long blocks ------------------------------------------------------------------

KEY = "QUJD" * 700  # longer than any piece of a line


@pytest.mark.parametrize("start", ["", "1. Save:\n\n   ", "> ", "- - "])
def test_a_long_line_of_code_is_kept_to_the_last_character(start: str) -> None:
    inner = "> " if start == "> " else " " * (len(start) - start.rfind("\n") - 1)
    text = f"{start}```text\n{inner}{KEY}\n{inner}END\n{inner}```\n\nafter\n"
    stream = Stream()
    for at in range(0, len(text), 60):
        stream.feed(text[at : at + 60])
    stream.feed("", last=True)
    (code,) = [block for block in stream.blocks if isinstance(block, Code)]
    assert (code.text, code.closed) == (f"{KEY}\nEND", True)
    assert text_of(stream.blocks[-1]) == "after"


def test_a_long_row_of_a_table_is_one_row() -> None:
    (table,) = parse(f"| No | Text | Owner |\n|---|---|---|\n| 1 | {'clause ' * 700}end | Ann |\n")
    assert isinstance(table, Table)
    assert [plain_text(cell)[-3:] for cell in table.rows[0]] == ["1", "end", "Ann"]


def test_a_long_paragraph_is_cut_outside_its_markup() -> None:
    text = " ".join(f"word{n} **bold text {n}** `code {n}` [a link {n}](u)" for n in range(400))
    blocks = parse(text)
    assert len(blocks) > 3
    assert [block.place.joined for block in blocks] == [False, *[True] * (len(blocks) - 1)]
    runs = [run for block in blocks if isinstance(block, Paragraph) for run in block.runs]
    assert sum(run.bold for run in runs) == sum(run.code for run in runs) == 400
    assert "".join(run.text for run in runs).count("a link") == 400
    assert "*" not in plain_text(tuple(runs))
    assert to_markdown(blocks) == text


def test_a_long_line_of_the_user_is_shown_in_pieces_and_kept() -> None:
    own = PlainText(KEY * 4 + " end")
    assert [block.place.joined for block in own.blocks] == [False, True, True]
    assert "".join(map(text_of, own.blocks)) == KEY * 4 + " end"


LONG = {
    "paragraphs": "Line {n} with **bold** and `code` here.\n\n",
    "a quote": "> Line {n} with **bold** and `code` here.\n>\n",
    "a quote without paragraphs": "> Line {n} with **bold** and `code` here.\n",
    "an item": "  Line {n} with **bold** and `code` here.\n\n",
    "a list in an item": "  - Line {n} with **bold** and `code` here.\n",
    "a list": "- Line {n} with **bold** and `code` here.\n",
    "a table in a quote": "> | Line {n} | with **bold** |\n",
    "lines of one paragraph": "Line {n} with **bold** and `code` here.\n",
    "one line": "Words {n} with **bold** and `code` here. ",
    "code": "    code {n}\n",
}
BEGINNINGS = {"an item": "- first\n\n", "a list in an item": "1. Top\n",
              "a table in a quote": "> | a | b |\n> |---|---|\n"}  # fmt: skip


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of characters of each text whose inline markup is parsed."""
    sizes: list[int] = []
    parse_inline = PARSER.inline.parse

    def counted(src: str, *rest: Any) -> list[Token]:
        sizes.append(len(src))
        return parse_inline(src, *rest)

    monkeypatch.setattr(PARSER.inline, "parse", counted)
    return sizes


@pytest.mark.parametrize("kind", LONG)
def test_an_update_parses_no_more_of_a_long_block_than_of_a_short_one(
    kind: str, parsed: list[int]
) -> None:
    text = BEGINNINGS.get(kind, "") + "".join(LONG[kind].format(n=n) for n in range(1000))
    stream = Stream()
    stream.feed(text[:30_000])
    parsed.clear()
    for at in range(30_000, 30_800, 8):
        stream.feed(text[at : at + 8])
    is_one_paragraph = kind in ("a quote without paragraphs", "lines of one paragraph", "one line")
    assert sum(parsed) <= 100 * (PIECE + 100 if is_one_paragraph else 150)


@pytest.mark.parametrize("line", ["\\[", "$$ a", "\\[ a \\] b", "- $$", "> \\["])
def test_lines_that_only_look_like_formulas_are_parsed_once(line: str, parsed: list[int]) -> None:
    text = f"{line}\n" * 1000
    stream = Stream()
    stream.feed(text)
    stream.feed("", last=True)
    assert sum(parsed) <= 3 * len(text) + 2 * PIECE


# --- what is markup and what is not ----------------------------------------------------------------


@pytest.mark.parametrize(
    "code", ["```toml\n{}\n```", "    {}", "> ```\n> {}\n> ```", "- ```\n  {}\n  ```", "`\n{}`"]
)
def test_code_defines_no_links(code: str) -> None:
    text = "Write [home] and [1].\n\n" + code.format("[home]: https://a.b") + "\n"
    first = parse(text)[0]
    assert isinstance(first, Paragraph)
    assert first.runs == (Run("Write [home] and [1]."),)


@pytest.mark.parametrize(
    "definition",
    [
        "[p]: https://a.b",
        "[p]:\nhttps://a.b\n'a title'",
        "> [p]: <https://a.b>",
        "- [p]: https://a.b",
    ],
)
def test_links_are_defined_where_the_specification_says(definition: str) -> None:
    for text in (f"See [P].\n\n{definition}\n", f"{definition}\n\nSee [P].\n"):
        stream = Stream()
        for letter in text:
            stream.feed(letter)
        stream.feed("", last=True)
        assert stream.blocks == parse(text)
        runs = [
            run for block in stream.blocks if isinstance(block, Paragraph) for run in block.runs
        ]
        assert Run("P", link="https://a.b") in runs
        assert not any("[p]" in run.text for run in runs)


@pytest.mark.parametrize(
    ("text", "bold"),
    [
        ("请注意**“截止日期”**是周五。", "“截止日期”"),
        ("**重点：**先备份。", "重点："),
        ("これは**補足（ほそく）**です。", "補足（ほそく）"),
        ("中**文**字", "文"),
        ("한국어**(강조)**입니다", "(강조)"),
        ("他说**“好。”**然后走了", "“好。”"),
        ("**「重要」**なお知らせ", "「重要」"),
    ],
)
def test_emphasis_works_beside_wide_characters(text: str, bold: str) -> None:
    (block,) = parse(text)
    assert isinstance(block, Paragraph)
    assert [run.text for run in block.runs if run.bold] == [bold]
    assert "*" not in plain_text(block.runs)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("见https://a.b/c。然后", "https://a.b/c"),
        ("（https://a.b/c）", "https://a.b/c"),
        ("「https://a.b/c」です", "https://a.b/c"),
        ("网址是https://a.b/c，打开它", "https://a.b/c"),
        ("**https://a.b/c**、", "https://a.b/c"),
        ("“https://a.b/c”", "https://a.b/c"),
        ("https://a.b/路径/页", "https://a.b/%E8%B7%AF%E5%BE%84/%E9%A1%B5"),
    ],
)
def test_a_bare_address_ends_before_wide_punctuation(text: str, address: str) -> None:
    (block,) = parse(text)
    assert isinstance(block, Paragraph)
    assert [run.link for run in block.runs if run.link] == [address]
    assert "*" not in plain_text(block.runs)


@pytest.mark.parametrize(
    ("text", "markers"),
    [
        ("1. [ ] open\n2. [x] done\n", [f"1. {BOX}", f"2. {TICKED}"]),
        ("3) [X] done\n", [f"3) {TICKED}"]),
        ("1. a [x]\n", ["1."]),
    ],
)
def test_tasks_of_an_ordered_list_have_a_number_and_a_box(text: str, markers: list[str]) -> None:
    blocks = parse(text)
    assert [block.place.path[0].marker for block in blocks] == markers
    assert text_of(blocks[0]) in ("open", "done", "a [x]")
