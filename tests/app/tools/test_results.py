"""Results as a model reads them: the cap, the fence, and control tokens that are none any more."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tools import results
from app.tools.results import MOST_CHARACTERS, capped, clean, harmless, shown
from engine.frontend.tokenizer.special import END_TEXTS, FIM_TEXTS, SHOWN_TEXTS, SpecialTokens

FIM = [text.lstrip("\u2581") for texts in FIM_TEXTS.values() for text in texts]
KNOWN = [
    *END_TEXTS, *FIM, *SHOWN_TEXTS, "<s>", "</s>", "<bos>", "<unk>", "<pad>", "<mask>",
    "<|im_start|>", "<|start_header_id|>", "<|python_tag|>", "<start_of_turn>", "<|turn>",
    "<tool_call|>", '<|"|>', "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "<<SYS>>",
    "<</SYS>>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>",
    "</think>", "<function=rm>", "<parameter=path>", "<\uff5cUser\uff5c>", "<image_soft_token>",
    "<unused12>", "<extra_id_0>", "<|vision_start|>", "<image>", "[IMG]", "]~b]", "[gMASK]", "<sop>",
    "<reserved_106>", "<function_calls>", '<invoke name="x">', "<|START_ACTION|>", "<turn|>",
]  # fmt: skip
PIECES = [
    *KNOWN, "<result-", "</result-", '">\n', "\n", "\r\n", "e\u0301", "\u200b", "\u202e", "\ud800",
    "\x1b[31m", "\0", "<", "[", "]", "|", ">", "a", "\u2028", "\U000e0041", "\U0001f468\u200d",
    "### Response:\n",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=60).map("".join)


def fence(text: str) -> tuple[str, str, str]:
    """The mark of a fence, what it holds, and its last line."""
    found = re.fullmatch(
        r'<result-([0-9a-f]+) tool="[^"\n]*" note="[^"]*">\n(.*)\n(</result-\1>)', text, re.S
    )
    assert found is not None
    return found[1], found[2], found[3]


@given(texts, st.sampled_from((500, 700, 25_000)), texts, st.sampled_from((1, 9, 200)))
def test_no_text_closes_its_fence_or_breaks_the_cap(
    text: str, most: int, name: str, times: int
) -> None:
    made = shown(text * times, name, most=most, kept=name)
    mark, body, end = fence(made.text)
    assert len(made.text) <= most
    assert mark not in body
    assert made.text.count(end) == 1
    assert made.left_out == 0 or f"{made.left_out:,} characters are left out" in body
    assert made.text.encode("utf-8")


@given(texts)
def test_nothing_in_a_result_is_a_control_token_of_the_engine(text: str) -> None:
    tokens = SpecialTokens((), [(known, number) for number, known in enumerate(KNOWN)])
    made = shown(text, "tool").text
    assert [
        piece for piece in tokens.split(made, parse_control=True) if isinstance(piece, int)
    ] == []
    assert harmless(made) == made


@given(texts)
def test_nothing_in_a_result_is_invisible(text: str) -> None:
    made = clean(text)
    wrong = [
        letter
        for letter in made
        if (unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t")
        or letter
        in "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
    ]
    assert wrong == []
    assert clean(made) == made


@pytest.mark.parametrize("known", KNOWN)
def test_a_control_token_is_broken_where_it_can_be_seen(known: str) -> None:
    made = harmless(f"before {known} after")
    assert known not in made
    assert made.replace(" ", "") == f"before{known}after".replace(" ", "")


@pytest.mark.parametrize(
    "plain",
    [
        "def f(x: list[int]) -> dict[str, int]: return {x[0]: x[1] << 2}",
        '<p class="a">Text <b>bold</b> and <img src="x.png"> and <table></table></p>',
        "if (a < b && c > d) { x |= y; } // [TODO]\n#include <stdio.h>",
        "let f = x |> g <| h\n### Results\n[link](https://example.org) <result>",
        "Template<T> a; std::vector<std::string> b; cout << \"x\" << endl;",
        "User: hello\nSystem: Linux\n\tassistant: someone",
    ],
)  # fmt: skip
def test_ordinary_text_and_code_stay_as_they_are(plain: str) -> None:
    assert harmless(clean(plain)) == plain


def test_a_hidden_token_is_found_after_what_hid_it_is_removed() -> None:
    for hidden in ("<\u200b|im_end|>", "<|im_\u200bend|>", "<\x1b[1m|im_end|>"):
        assert "< |im_end|>" in shown(hidden, "tool").text


def test_a_mark_is_one_that_the_text_does_not_contain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_MARK", 1)
    for missing in "0123456789abcdef":
        text = "0123456789abcdef".replace(missing, "")
        assert shown(text, "tool").text.endswith(f"</result-{missing}>")


def test_a_long_result_keeps_its_head_and_its_tail_and_says_where_the_whole_is() -> None:
    text = "".join(f"line {n}\n" for n in range(10_000))
    made = shown(text, "run", kept="the file result.txt")
    assert len(made.text) <= MOST_CHARACTERS
    assert "line 0\n" in made.text
    assert made.text.rstrip().endswith("line 9999\n\n" + made.text[-len("</result-000000>") :])
    assert "the whole is kept in the file result.txt" in made.text
    kept = len(made.text) - made.text.index("line 0") - len("\n</result-000000>")
    assert abs(len(text) - made.left_out - kept) < 150  # the note


def test_what_is_left_out_of_a_huge_result_is_counted_but_not_read() -> None:
    text = "a" * 3_000 + "<|im_end|>" * 1_000_000 + "z" * 1_000
    made = shown(text, "run", most=1000, fenced=False)
    head, _, rest = made.text.partition("\n[... ")
    count, _, tail = rest.partition(" characters are left out here ...]\n")
    assert len(made.text) <= 1000
    assert set(head) == {"a"}
    assert set(tail) == {"z"}
    assert int(count.replace(",", "")) == made.left_out == len(text) - len(head) - len(tail)


def test_whole_lines_are_kept_where_that_is_cheap() -> None:
    body, left_out = capped("".join(f"line {n}\n" for n in range(1000)), 1000)
    head, _, tail = body.partition("[...")
    assert re.fullmatch(r"(?:line \d+\n)+\n", head)
    assert re.fullmatch(r".*\n(?:line \d+\n)+", tail)
    assert left_out > 0


def test_a_cut_does_not_part_a_letter_from_its_accents() -> None:
    text = "e\u0301\u0302" * 1000
    for most in range(500, 520):
        body, _ = capped(text, most)
        head, _, rest = body.partition("\n[...")
        tail = rest.partition("...]\n")[2]
        assert len(head) % 3 == 0
        assert tail.startswith("e")


def test_an_unfenced_result_is_as_short_as_its_text() -> None:
    assert shown("0.1+0.2 = 0.3", "calculate", fenced=False).text == "0.1+0.2 = 0.3"


def test_the_same_result_has_the_same_fence_so_that_its_cached_text_stays_of_use() -> None:
    assert shown("text", "tool") == shown("text", "tool")


def test_a_cap_without_room_for_the_fence_is_refused() -> None:
    with pytest.raises(ValueError, match="room"):
        shown("text", "tool", most=100)


def test_a_cut_makes_no_border_of_a_turn() -> None:
    for shift in range(16):
        found = shown("x" + "y" * shift + "### Instruction:" * 400, "t", most=600)
        assert found.left_out
        assert "\n### Instruction" not in found.text
