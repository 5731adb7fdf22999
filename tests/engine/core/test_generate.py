"""Answers of a tiny model: stop strings, limits, prefix reuse, cancellation, whole characters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

import tiny
from answers import GREEDY, Request, answer, answered
from engine import (
    FinishReason,
    PromptProgress,
    PromptTooLong,
    RequestError,
    Sampling,
    Text,
)
from engine.core.request import MOST_ANSWERS
from engine.frontend.answer_stream import AnswerStream, Kind, Piece
from engine.frontend.stop_filter import StopFilter
from engine.loading.loader import LoadedModel, load


@pytest.fixture
def model(tmp_path: Path) -> LoadedModel:
    return load(tiny.write(tmp_path / "tiny.gguf", architecture="llama"))


def test_an_answer_streams_as_the_tokens_decode(model: LoadedModel) -> None:
    made = answer(model, [5, 6, 7], max_tokens=24)
    assert made.finished.generated_tokens == len(made.tokens) == 24
    assert made.finished.reason is FinishReason.LENGTH
    stream = AnswerStream(None, model.tokenizer)
    assert made.text == "".join(text for _, text in stream.push_all(made.tokens))


def test_equal_requests_give_equal_answers(model: LoadedModel) -> None:
    seeded, other = Sampling(temperature=1.0, seed=5), Sampling(temperature=1.0, seed=6)
    one = answer(model, [9, 8, 7, 6], seeded, max_tokens=40).tokens
    assert one == answer(model, [9, 8, 7, 6], seeded, max_tokens=40).tokens
    assert one != answer(model, [9, 8, 7, 6], other, max_tokens=40).tokens


@pytest.mark.parametrize("kept", [1, 50, 77, 79, 80])
def test_reused_prefix_is_not_computed_again(model: LoadedModel, kept: int) -> None:
    prompt = list(range(10, 90))
    fresh = answer(model, prompt, max_tokens=12)
    scheduler = model.new_scheduler()
    answer(scheduler, [*prompt[:kept], 3, 4, 5], max_tokens=6)
    made = answer(scheduler, prompt, max_tokens=12)
    assert (made.text, made.tokens) == (fresh.text, fresh.tokens)  # test_reuse.py compares bits
    assert made.finished.reused_tokens == min(kept, 79)
    assert made.finished.prompt_tokens == 80


def test_the_same_prompt_again_computes_one_token(model: LoadedModel) -> None:
    scheduler, prompt = model.new_scheduler(), list(range(40))
    first = answer(scheduler, prompt, max_tokens=5)
    again = answer(scheduler, prompt, max_tokens=5)
    assert again.finished.reused_tokens == 39
    assert again.tokens == first.tokens


def test_several_texts_stay_cached_at_the_same_time(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    prompts = [[start, *range(10, 60)] for start in (3, 4, 5)]
    first = [answer(scheduler, prompt, max_tokens=4) for prompt in prompts]
    for prompt, before in zip(prompts, first, strict=True):
        again = answer(scheduler, prompt, max_tokens=4)
        assert again.finished.reused_tokens == len(prompt) - 1
        assert again.tokens == before.tokens


def test_the_context_is_filled_to_its_last_token(tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path / "tiny.gguf", context=32))
    made = answer(model, [5] * 20, Sampling(temperature=1.5, seed=1))
    if made.finished.reason is FinishReason.END:
        pytest.fail("the seed must not end the answer")
    assert made.finished.reason is FinishReason.CONTEXT
    assert made.finished.context_used == 32
    assert len(made.tokens) == 13  # the last one is sampled with a full context and not appended


def test_a_prompt_that_fills_the_context_is_refused_with_figures(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    with pytest.raises(PromptTooLong, match=r"300 tokens.*256") as refused:
        answer(scheduler, [1] * 300)
    assert "new chat" in refused.value.remedy
    assert not scheduler.is_busy
    assert scheduler.pool.used_bytes == 0


@pytest.mark.parametrize(
    "wrong",
    [
        Request([]),
        Request([1], max_tokens=-1),
        Request([1], count=0),
        Request([1], count=MOST_ANSWERS + 1),
        Request([1], Sampling(temperature=-1)),
    ],
)
def test_invalid_requests_are_refused(model: LoadedModel, wrong: Request) -> None:
    scheduler = model.new_scheduler()
    with pytest.raises(RequestError):
        scheduler.submit(wrong)
    assert not scheduler.is_busy


def test_a_stop_string_ends_the_answer_before_it(model: LoadedModel) -> None:
    text = answer(model, [5, 6, 7], max_tokens=40).text
    stop = text[10:13]
    cut = answer(model, [5, 6, 7], max_tokens=40, stop=(stop, "never"))
    assert cut.text == text[: text.index(stop)]
    assert cut.finished.reason is FinishReason.STOP
    assert len(cut.tokens) <= 40


def test_cancel_in_prefill_keeps_whole_chunks(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    scheduler.runner.chunk = 64
    calls = 0

    def cancelled() -> bool:
        """In the second chunk: asked before it and between its layers."""
        nonlocal calls
        calls += len(ticket.request.events) > 1
        return calls > 2

    ticket = scheduler.submit(Request([3] * 200, GREEDY, cancelled=cancelled))
    while not ticket.done:
        scheduler.step()
    cut = answered(ticket)
    assert cut.finished.reason is FinishReason.CANCELLED
    assert cut.finished.generated_tokens == 0
    assert cut.finished.context_used == 64
    again = answer(scheduler, [3] * 200, max_tokens=5)
    assert again.finished.reused_tokens == 64
    assert again.tokens == answer(model, [3] * 200, max_tokens=5).tokens


def test_cancel_in_decode_keeps_the_text_so_far(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    ticket = scheduler.submit(
        Request(
            [5, 6, 7], GREEDY, max_tokens=200, cancelled=lambda: len(ticket.request.events) >= 7
        )
    )
    while not ticket.done:
        scheduler.step()
    cut = answered(ticket)
    assert cut.finished.reason is FinishReason.CANCELLED
    assert 5 <= cut.finished.generated_tokens <= 7
    assert cut.text
    assert answer(model, [5, 6, 7], max_tokens=30).text.startswith(cut.text)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0, seed=4)])
def test_an_interrupted_answer_continues_as_if_it_had_not_been(
    model: LoadedModel, sampling: Sampling
) -> None:
    whole = answer(model, [5, 6, 7], sampling, max_tokens=30).tokens
    scheduler = model.new_scheduler()
    made = answer(scheduler, [5, 6, 7], sampling, max_tokens=9).tokens
    for most in (1, 8, 12):
        part = answer(scheduler, [5, 6, 7, *made], sampling, max_tokens=most)
        made += part.tokens
    assert made == whole


def test_tokens_without_text_are_counted_as_they_come(model: LoadedModel) -> None:
    made = answer(model, [5, 6, 7], max_tokens=60)
    pieces = [event for event in made.events if isinstance(event, Text)]
    assert any(not piece.text for piece in pieces), "some token must end inside a character"
    assert [piece.generated_tokens for piece in pieces] == list(range(1, 61))
    assert [piece.context_used for piece in pieces] == list(range(4, 64))


def test_tokens_of_text_buffered_for_a_stop_string_are_counted(model: LoadedModel) -> None:
    whole = answer(model, [5, 6, 7], max_tokens=40)
    made = answer(model, [5, 6, 7], max_tokens=40, stop=(whole.text + "x",))
    pieces = [event for event in made.events if isinstance(event, Text)]
    assert made.text == whole.text
    assert [piece.generated_tokens for piece in pieces[:40]] == list(range(1, 41))
    assert made.tokens == whole.tokens


def test_progress_counts_up_to_the_prompt(model: LoadedModel) -> None:
    made = answer(model, [3] * 200, max_tokens=1)
    progress = [event.done_tokens for event in made.events if isinstance(event, PromptProgress)]
    assert progress[0] == 0
    assert progress[-1] == 200
    assert progress == sorted(progress)


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize(
    ("stops", "text", "kept"),
    [
        (("</s>",), "hello </s> world", "hello "),
        (("</s>",), "a < b </ c", "a < b </ c"),
        (("ab", "abc"), "xxabcx", "xx"),
        (("aab",), "aaaab", "aa"),
        (("。",), "你好。再见", "你好"),
        ((), "anything", "anything"),
        (("",), "anything", "anything"),
    ],
)
def test_stop_filter(stops: tuple[str, ...], text: str, kept: str, size: int) -> None:
    filtered, out = StopFilter(stops), ""
    for start in range(0, len(text), size):
        out += joined(filtered.push([(Kind.TEXT, text[start : start + size])]))
        if filtered.stopped:
            break
    assert out + joined(filtered.flush()) == kept
    assert filtered.stopped == (kept != text)


def joined(pieces: Sequence[Piece]) -> str:
    """The text of pieces, with the tags."""
    return "".join(text for _, text in pieces)


@pytest.mark.parametrize(
    ("stop", "kept", "kinds"),
    [
        ("b</think>", "<think>a", [Kind.OPENS, Kind.THOUGHT]),
        ("k>c", "<think>ab</thin", [Kind.OPENS, Kind.THOUGHT, Kind.TEXT]),
        ("cd", "<think>ab</think>", [Kind.OPENS, Kind.THOUGHT, Kind.ENDS]),
        ("</think>", "<think>ab", [Kind.OPENS, Kind.THOUGHT]),
        ("k>x", "<think>ab</think>cd", [Kind.OPENS, Kind.THOUGHT, Kind.ENDS, Kind.TEXT]),
    ],
)
def test_a_stop_string_may_be_in_thoughts_and_across_a_tag(
    stop: str, kept: str, kinds: list[Kind]
) -> None:
    filtered, found = StopFilter([stop]), list[Piece]()
    for piece in (
        (Kind.OPENS, "<think>"),
        (Kind.THOUGHT, "ab"),
        (Kind.ENDS, "</think>"),
        (Kind.TEXT, "cd"),
    ):
        if not filtered.stopped:
            found += filtered.push([piece])
    found += filtered.flush()
    assert joined(found) == kept
    assert [kind for kind, _ in groupby(kind for kind, _ in found)] == kinds


def test_interrupted_answer_omits_an_incomplete_character(model: LoadedModel) -> None:
    whole = answer(model, [5, 6, 7], max_tokens=60).tokens
    pieces = [model.tokenizer.piece(token) for token in whole]
    starts = [at for at, piece in enumerate(pieces) if b"\xc2" <= piece[-1:] <= b"\xf4"]
    assert starts, "the model must begin a character somewhere"
    for at in starts:
        made = answer(model, [5, 6, 7], max_tokens=at + 1)
        assert made.finished.reason is FinishReason.LENGTH
        assert made.tokens == whole[: at + 1]
        stream = AnswerStream(None, model.tokenizer)
        assert made.text == "".join(text for _, text in stream.push_all(made.tokens))
        assert stream.flush() == [(Kind.TEXT, "\ufffd")]


@pytest.mark.slow
@pytest.mark.real
def test_two_processes_compute_the_same_bits(starter_model: Path) -> None:
    root = Path(__file__).parents[3]
    text = (root / "tests" / "golden" / "ppl_text.txt").read_text(encoding="utf-8")[:3000]
    words = [sys.executable, "-m", "engine", "logits", "--top", "0", "--json"]
    words += ["-m", str(starter_model), "-p", text]
    one, other = (
        subprocess.run(words, cwd=root, capture_output=True, check=True).stdout for _ in range(2)
    )
    assert len(one) > 100_000
    assert one == other
