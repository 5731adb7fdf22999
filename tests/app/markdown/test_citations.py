"""References to passages: numbers in brackets that an answer may cite are links."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.markdown.blocks import Block, Run, passage_link, passage_number, runs_of
from app.markdown.export import to_html, to_markdown
from app.markdown.spoken import to_speech
from app.markdown.stream import Reply, Stream, parse

KNOWN = frozenset((1, 2, 3, 12))


def links(text: str, known: frozenset[int] = KNOWN) -> list[tuple[str, str]]:
    """The links of a text: what is shown, and where it leads."""
    return [
        (run.text, run.link) for block in parse(text, known) for run in runs_of(block) if run.link
    ]


def shown(blocks: list[Block]) -> str:
    return "\n".join("".join(run.text for run in runs_of(block)) for block in blocks)


def cites(*pairs: tuple[str, int]) -> list[tuple[str, str]]:
    return [(text, passage_link(number)) for text, number in pairs]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Two years [1].", cites(("[1]", 1))),
        ("Two years[1][2].", cites(("[1]", 1), ("[2]", 2))),
        ("Two years [2, 3].", cites(("[2", 2), ("3]", 3))),
        ("Two years [1; 12].", cites(("[1", 1), ("12]", 12))),
        ("Two years [1-3].", cites(("[1", 1), ("3]", 3))),
        ("Two years [1–3].", cites(("[1", 1), ("3]", 3))),
        ("Two years [1, 9].", cites(("[1", 1))),
        ("Two years [9, 1].", cites(("1]", 1))),
        ("Two years [9].", []),
        ("Two years [0] [] [x] [1.5] [01234567].", []),
        ("Great![1]", cites(("[1]", 1))),
        ("**Two years [1]**", cites(("[1]", 1))),
        ("# Years [1]", cites(("[1]", 1))),
        ("- two [1]\n- three [2]", cites(("[1]", 1), ("[2]", 2))),
        ("| a [1] | b |\n|--|--|\n| c | d [2] |", cites(("[1]", 1), ("[2]", 2))),
        ("[1] manual.pdf, page 3", cites(("[1]", 1))),
        ("Siehe [1](unten im Text)", cites(("[1]", 1))),
        ("年保修[1]。", cites(("[1]", 1))),
        (
            "*two [1]* ~~three [2]~~ ***four [3] and* five [12]**",
            cites(("[1]", 1), ("[2]", 2), ("[3]", 3), ("[12]", 12)),
        ),
        (
            "Two years\u30101\u3011\u30102\u2020source\u3011.",
            cites(("\u30101\u3011", 1), ("\u30102\u2020source\u3011", 2)),
        ),
        (
            "\u30109, 2\u2020L1-L3\u3011 \u30109\u2020x\u3011 \u30104:0\u2020x\u3011 \u30101",
            cites(("2\u2020L1-L3\u3011", 2)),
        ),
    ],
)
def test_numbers_of_passages_are_links(text: str, found: list[tuple[str, str]]) -> None:
    assert links(text) == found
    assert links(text, frozenset()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`a[1]`", []),
        ("```\na[1]\n```", []),
        ("    a[1]", []),
        ("~~~\na[1]\n~~~", []),
        ("``a` [1]``", []),
        ("```\na[1]", []),
        ("$a[1]$", []),
        ("\\[1]", []),
        ("[^1] and [^1]: a note", []),
        ("[1](https://a.b)", [("1", "https://a.b")]),
        ("[see [1]](https://a.b)", [("see [1]", "https://a.b")]),
        ("See [1].\n\n[1]: https://a.b", [("1", "https://a.b")]),
        ("[site][1] [2]\n\n[1]: https://a.b", [("site", "https://a.b"), *cites(("[2]", 2))]),
        ("[x](passage:1) <passage:2>", []),
        ("[x](PASSAGE:1)", []),
        ("- [ ] open", []),
        ("`\u30101\u3011` \u3010\u6ce8\u3011 \u3010\u3011", []),
    ],
)
def test_other_brackets_are_what_they_were(text: str, found: list[tuple[str, str]]) -> None:
    assert links(text) == found


PIECES = st.lists(
    st.sampled_from(
        ("[1]", "[2, 3]", "[1-3]", "[9]", "[", "]", "1", ", ", "-", "(", ")", " words", "`", "**",
         "\n", "\n\n", "[1]: http://a.b", "[1](http://a.b)", "![1]", "| ",
         "\u3010", "\u3011", "\u30101\u2020x\u3011")
    ),
    max_size=14,
).map("".join)  # fmt: skip


@given(PIECES, st.integers(1, 7))
def test_the_result_does_not_depend_on_the_pieces(text: str, size: int) -> None:
    stream = Stream(passages=KNOWN)
    for at in range(0, len(text), size):
        stream.feed(text[at : at + size])
    stream.feed("", last=True)
    assert stream.blocks == parse(text, KNOWN)


@given(PIECES)
@example("[1]: http://a.b[2, 3][1-3]")
@example("\\* [1, 9] and [9, 1]; [1-3] \\*")
def test_copies_have_the_same_references(text: str) -> None:
    blocks = parse(text, KNOWN)
    numbers = [passage_number(run.link) for block in blocks for run in runs_of(block)]
    again = parse(to_markdown(blocks), KNOWN)
    assert [passage_number(run.link) for block in again for run in runs_of(block) if run.link] == [
        number
        for number, run in zip(numbers, (r for b in blocks for r in runs_of(b)), strict=True)
        if run.link
    ]
    assert "passage:" not in to_html(blocks)


def test_a_reference_does_not_flicker_while_it_arrives() -> None:
    text = "It is **two years** [1], or three [2, 12]. Clean it [3] or \u30102\u2020line 4\u3011 \u30101\u3011"
    whole = shown(parse(text, KNOWN))
    stream = Stream(passages=KNOWN)
    for at, letter in enumerate(text):
        stream.feed(letter)
        now = shown(stream.blocks)
        assert whole.startswith(now.rstrip("*")), text[: at + 1]
        runs = [run for block in stream.blocks for run in runs_of(block)]
        ends = sum(text[: at + 1].count(end) for end in "]\u3011")
        assert ends == sum(run.text.endswith(("]", "\u3011")) for run in runs if run.link)


def test_thoughts_and_text_of_an_answer_cite() -> None:
    reply = Reply(KNOWN)
    for letter in "<think>See [1].</think>Two years [2].":
        reply.feed(letter)
    reply.feed("", last=True)
    for stream, number in ((reply.thoughts, 1), (reply.body, 2)):
        (block,) = stream.blocks
        assert Run(f"[{number}]", link=passage_link(number)) in runs_of(block)


def test_a_copy_has_the_numbers_as_they_were_written() -> None:
    blocks = parse("Two years [1], *or* [2, 3].\n\n| a |\n|--|\n| b [1] |", KNOWN)
    assert to_markdown(blocks) == "Two years [1], *or* [2, 3].\n\n| a |\n|---|\n| b [1] |"
    assert to_html(blocks).startswith("<p>Two years [1], <em>or</em> [2, 3].</p>")


def test_a_copy_may_show_references_in_another_way() -> None:
    blocks = parse("Two years [1], or [2-12].", KNOWN)
    assert to_markdown(blocks, lambda number, _: f"[^{number}]") == "Two years [^1], or [^2]-[^12]."
    html = to_html(blocks, lambda run: f"<a>{run.text}</a>" if isinstance(run, Run) else "")
    assert html == "<p>Two years <a>[1]</a>, or <a>[2</a>-<a>12]</a>.</p>"


def test_references_are_not_read_aloud() -> None:
    text = "Two years [1], or three [2, 3] [12].\n\n| a [1] | b |\n|--|--|\n| c [9] | d[1-3] |"
    assert to_speech(parse(text, KNOWN)) == "Two years, or three.\na, b\nc [9], d"
