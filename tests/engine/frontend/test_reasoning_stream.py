"""The stream of thoughts: markers in tokens of any size, and the tokens between them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import tiny
from engine.frontend.answer_stream import AnswerStream, Kind, Phase, Piece
from engine.frontend.reasoning_budget import ThoughtPlan, Thoughts
from engine.frontend.template import ChatTemplate
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages.reasoning_markers import ThoughtMarkers
from thinkers import FAMILIES

HARMONY = ChatTemplate(FAMILIES["gpt-oss"].template, bos="", eos="").markers
USUAL = ThoughtMarkers()


def tokenizer_with(*tokens: str, control: tuple[str, ...] = ()) -> Tokenizer:
    words = tiny.bpe("llama")
    words["tokenizer.ggml.tokens"] += tokens
    words["tokenizer.ggml.token_type"] += [3 if one in control else 4 for one in tokens]
    return Tokenizer.from_metadata(words)


def streamed(
    markers: ThoughtMarkers, tokenizer: Tokenizer, *pieces: str
) -> tuple[list[str], AnswerStream]:
    """The texts of each step, of texts that are tokenized alone."""
    stream = AnswerStream(markers, tokenizer)
    ids = [token for piece in pieces for token in tokenizer.encode(piece, add_special=False)]
    return [*(joined(stream.push(one)) for one in ids), joined(stream.flush())], stream


def joined(pieces: Sequence[Piece]) -> str:
    """The text of pieces, with the tags."""
    return "".join(text for _, text in pieces)


MEANT = (Kind.TEXT, Kind.THOUGHT)
PLAIN = tokenizer_with()
OF_HARMONY = tokenizer_with(*FAMILIES["gpt-oss"].tokens, control=("<|end|>", "<|return|>"))


@pytest.mark.parametrize("tokenizer", [PLAIN, OF_HARMONY], ids=["bytes", "tokens"])
def test_channels_become_the_usual_tags(tokenizer: Tokenizer) -> None:
    texts, stream = streamed(HARMONY, tokenizer, HARMONY.opens, "a", "b", HARMONY.ends, "yes")
    assert "".join(texts) == "<think>ab</think>yes"
    assert stream.tokens == 2
    texts, _ = streamed(HARMONY, tokenizer, HARMONY.header, "yes")
    assert "".join(texts) == "yes"
    texts, stream = streamed(
        HARMONY, tokenizer, HARMONY.opens, "a", HARMONY.again, "b", HARMONY.ends, "yes"
    )
    assert "".join(texts) == "<think>a\n\nb</think>yes"
    assert stream.tokens == 2


def test_thoughts_and_text_are_pieces_of_their_own() -> None:
    stream = AnswerStream(HARMONY, OF_HARMONY)
    ids = OF_HARMONY.encode(f"{HARMONY.opens}ab{HARMONY.ends}yes", add_special=False)
    pieces = [piece for one in ids for piece in stream.push(one)]
    shown = {kind: "".join(text for one, text in pieces if one is kind) for kind in Kind}
    assert (shown[Kind.THOUGHT], shown[Kind.TEXT]) == ("ab", "yes")
    order = [kind for kind, _ in pieces if kind in (Kind.OPENS, Kind.ENDS)]
    assert order == [Kind.OPENS, Kind.ENDS]


def test_what_is_held_when_an_answer_is_cut_is_not_lost() -> None:
    stream = AnswerStream(USUAL, PLAIN)
    ids = PLAIN.encode("<think>a</th", add_special=False)
    pieces = [piece for one in ids for piece in stream.push(one)]
    assert joined(pieces) == "<think>a"
    assert joined(stream.flush(is_complete=False)) == "</th"
    other = AnswerStream(HARMONY, OF_HARMONY)  # "assistant" is not text where a marker is cut
    for one in OF_HARMONY.encode(HARMONY.opens + "<|end|><|start|>assistant", add_special=False):
        other.push(one)
    assert other.flush(is_complete=False) == ()


def test_a_marker_that_is_not_one_is_text() -> None:
    texts, stream = streamed(USUAL, PLAIN, "<think>a</thin>b</think>c</think>")
    assert "".join(texts) == "<think>a</thin>b</think>c</think>"
    assert stream.tokens == len("a</thin>b")
    for text in ("<thin", "a<think>b", " \n", "<", ""):
        assert "".join(streamed(USUAL, PLAIN, text)[0]) == text


@pytest.mark.parametrize("markers", [USUAL, ThoughtMarkers("[THINK]", "[/THINK]", "[/THINK]")])
@pytest.mark.parametrize(
    ("thought", "answer"),
    [
        ("what `{}` does", "It `ends`."),
        ("a `b`", "c `d`"),
        ("a `b", "\nc `d`"),
        ("a `b", "c" * 100),
        ("a `b", "c"),
        ("\n```\nx = '{}'\n```\n", "b"),
        ("\n```\nx\n", "\nb"),
    ],
)
def test_a_marker_in_code_does_not_end_thoughts(
    markers: ThoughtMarkers, thought: str, answer: str
) -> None:
    written = f"{markers.opens}{thought.format(markers.ends)}{markers.ends}{answer}"
    texts, stream = streamed(markers, PLAIN, *written)
    assert "".join(texts) == f"<think>{thought.format(markers.ends)}</think>{answer}"
    assert stream.phase is Phase.ANSWER
    assert stream.tokens == len(thought.format(markers.ends).removeprefix("\n"))


def test_a_marker_inside_larger_tokens() -> None:
    tokenizer = tokenizer_with("<think>Hm", "m</think>\n\nY")
    texts, stream = streamed(USUAL, tokenizer, "<think>Hm", "a", "m</think>\n\nY", "es")
    assert texts[:3] == ["<think>Hm", "a", "m</think>\n\nY"]
    assert stream.tokens == 3


def test_the_white_space_behind_the_opening_marker_is_not_counted() -> None:
    assert streamed(USUAL, PLAIN, "<think>\na\n</think>")[1].tokens == 2
    assert streamed(USUAL, PLAIN, "<think>a\n</think>")[1].tokens == 2


def test_control_tokens_are_markers_and_not_shown_otherwise() -> None:
    markers = ThoughtMarkers("[THINK]", "[/THINK]", "[/THINK]")
    control = ("[THINK]", "[/THINK]", "[X]")
    tokenizer = tokenizer_with(*control, control=control)
    texts, stream = streamed(markers, tokenizer, "[THINK]a[X]b[/THINK]c[X]d")
    assert "".join(texts) == "<think>ab</think>cd"
    assert stream.tokens == 3


def test_a_begun_marker_is_completed() -> None:
    plan = ThoughtPlan(USUAL, 3, "<think>\n")
    prompt = PLAIN.encode("hello<think>\n", add_special=False)
    thoughts = Thoughts(plan, PLAIN, prompt, is_bare=False)
    written = ""
    for number, letter in enumerate("a</", 1):
        assert not thoughts.must_end
        thoughts.push(PLAIN.encode(letter)[0], number)
    while (token := thoughts.forced()) is not None:
        thoughts.push(token, number := number + 1)
        written += PLAIN.piece(token).decode()
    assert written == "think>\n\n"
    assert thoughts.tokens == 1
    assert not thoughts.is_thinking
    assert thoughts.free_tokens(number) == number


def test_thoughts_that_end_by_themselves_do_not_use_their_budget_up() -> None:
    thoughts = Thoughts(ThoughtPlan(USUAL, 10), PLAIN, PLAIN.encode("hello"), is_bare=False)
    ids = PLAIN.encode("<think>ab</think>yes", add_special=False)
    for number, token in enumerate(ids, 1):
        assert thoughts.forced() is None
        thoughts.push(token, number)
    assert (thoughts.tokens, thoughts.is_exhausted) == (2, False)
    assert len(ids) - thoughts.free_tokens(len(ids)) == len(PLAIN.encode("yes"))


def test_an_answer_without_thoughts_has_no_limit_of_thoughts() -> None:
    thoughts = Thoughts(ThoughtPlan(USUAL, 1), PLAIN, PLAIN.encode("hello"), is_bare=False)
    for number, token in enumerate(PLAIN.encode("yes, <think> is a tag"), 1):
        assert thoughts.forced() is None
        thoughts.push(token, number)
        assert thoughts.free_tokens(number) == 0
    assert thoughts.tokens == 0


def test_tokens_taken_back_count_again() -> None:
    plan = ThoughtPlan(USUAL, 2, "<think>\n")
    thoughts = Thoughts(plan, PLAIN, PLAIN.encode("<think>\n"), is_bare=False)
    first, second = PLAIN.encode("ab")
    thoughts.push(first, 1)
    thoughts.push(second, 2)
    assert thoughts.must_end
    thoughts.push(thoughts.forced() or 0, 3)
    thoughts.rewind(2)
    assert (thoughts.tokens, thoughts.must_end, thoughts.is_exhausted) == (1, False, False)


def test_an_incomplete_character_at_the_budget_is_left_out() -> None:
    stream = AnswerStream(HARMONY, OF_HARMONY)
    text = ""
    for token in OF_HARMONY.encode(HARMONY.opens, add_special=False):
        text += joined(stream.push(token))
    for token in OF_HARMONY.encode("ä")[:1]:
        text += joined(stream.push(token))
    for token in OF_HARMONY.encode(HARMONY.ends + "ö", add_special=False):
        text += joined(stream.push(token, counted=False))
    assert text == "<think></think>ö"


@pytest.mark.parametrize("tokenizer", [PLAIN, OF_HARMONY], ids=["bytes", "tokens"])
def test_a_message_of_a_tool_call_ends_thoughts(tokenizer: Tokenizer) -> None:
    call = "<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}"
    shown = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")

    def run(*pieces: str, calls_end: bool) -> list[tuple[Kind, str]]:
        stream = AnswerStream(HARMONY, tokenizer, shown=shown, calls_end=calls_end)
        ids = [one for each in pieces for one in tokenizer.encode(each, add_special=False)]
        found = [piece for one in ids for piece in stream.push(one)] + list(stream.flush())
        texts = {kind: "".join(text for each, text in found if each is kind) for kind in Kind}
        return [(kind, text) for kind, text in texts.items() if text and kind in MEANT]

    begun = HARMONY.opens, "ab"
    assert run(*begun, call, calls_end=True) == [(Kind.TEXT, call), (Kind.THOUGHT, "ab")]
    assert run(*begun, call, calls_end=False) == [(Kind.THOUGHT, "ab" + call)]
    # Other thoughts and the answer are what they were.
    final = run(*begun, HARMONY.again, "c", HARMONY.ends, "yes", calls_end=True)
    assert final == [(Kind.TEXT, "yes"), (Kind.THOUGHT, "ab\n\nc")]


def test_a_token_that_ends_answers_may_end_thoughts() -> None:
    markers = ChatTemplate(FAMILIES["Solar"].template, bos="", eos="").markers
    tokenizer = tokenizer_with(*FAMILIES["Solar"].tokens, control=("<|end|>",))
    (end,) = tokenizer.encode("<|end|>", add_special=False)
    assert end in tokenizer.end_tokens
    plan = ThoughtPlan(markers, None, "<|think|>")
    prompt = tokenizer.encode("<|think|>", add_special=False)
    thoughts = Thoughts(plan, tokenizer, prompt, is_bare=False)
    assert thoughts.is_marker(end)
    for number, token in enumerate(tokenizer.encode(markers.ends, add_special=False), 1):
        thoughts.push(token, number)
    assert not thoughts.is_thinking
    assert not thoughts.is_marker(end)
