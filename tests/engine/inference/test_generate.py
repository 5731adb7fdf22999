"""Answer on a tiny model: stop strings, limits, prefix reuse, cancellation, whole characters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tiny
from engine import (
    Finished,
    FinishReason,
    PromptProgress,
    PromptTooLong,
    RequestError,
    Sampling,
    Text,
)
from engine.inference.generate import Answer, StopFilter
from engine.loading.loader import LoadedModel, load

GREEDY = Sampling(temperature=0)


@pytest.fixture
def model(tmp_path: Path) -> LoadedModel:
    return load(tiny.write(tmp_path / "tiny.gguf", architecture="llama"))


def answer(
    model: LoadedModel, prompt: list[int], **options: object
) -> tuple[str, list[int], Finished]:
    session = options.pop("session", None) or model.new_session()
    text, finished = "", None
    sampling = options.pop("sampling", GREEDY)
    record = Answer(session, model.tokenizer, prompt, sampling, **options)  # type: ignore[arg-type]
    for event in record.events():
        if isinstance(event, Text):
            text += event.text
        elif isinstance(event, Finished):
            finished = event
    assert finished is not None
    return text, record.tokens, finished


def test_an_answer_streams_as_the_tokens_decode(model: LoadedModel) -> None:
    text, tokens, finished = answer(model, [5, 6, 7], max_tokens=24)
    assert finished.generated_tokens == len(tokens) == 24
    assert finished.reason is FinishReason.LENGTH
    stream = model.tokenizer.stream()
    assert text == "".join(map(stream.push, tokens))


def test_equal_requests_give_equal_answers(model: LoadedModel) -> None:
    seeded = Sampling(temperature=1.0, seed=5)
    one = answer(model, [9, 8, 7, 6], max_tokens=40, sampling=seeded)[1]
    assert one == answer(model, [9, 8, 7, 6], max_tokens=40, sampling=seeded)[1]
    assert (
        one
        != answer(model, [9, 8, 7, 6], max_tokens=40, sampling=Sampling(temperature=1.0, seed=6))[1]
    )


@pytest.mark.parametrize("kept", [1, 50, 77, 79, 80])
def test_reused_prefix_is_not_computed_again(model: LoadedModel, kept: int) -> None:
    prompt = list(range(10, 90))
    fresh = answer(model, prompt, max_tokens=12)
    session = model.new_session()
    answer(model, [*prompt[:kept], 3, 4, 5], max_tokens=6, session=session)
    text, tokens, finished = answer(model, prompt, max_tokens=12, session=session)
    assert (text, tokens) == fresh[:2]  # test_reuse.py compares bits
    assert finished.reused_tokens == min(kept, 79)
    assert finished.prompt_tokens == 80


def test_the_same_prompt_again_computes_one_token(model: LoadedModel) -> None:
    session, prompt = model.new_session(), list(range(40))
    first = answer(model, prompt, max_tokens=5, session=session)
    again = answer(model, prompt, max_tokens=5, session=session)
    assert again[2].reused_tokens == 39
    assert again[1] == first[1]


def test_the_context_is_filled_to_its_last_token(tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path / "tiny.gguf", context=32))
    _, tokens, finished = answer(model, [5] * 20, sampling=Sampling(temperature=1.5, seed=1))
    if finished.reason is FinishReason.END:
        pytest.fail("the seed must not end the answer")
    assert finished.reason is FinishReason.CONTEXT
    assert finished.context_used == 32
    assert len(tokens) == 13  # the last one is sampled with a full context and not appended


def test_a_prompt_that_fills_the_context_is_refused_with_figures(model: LoadedModel) -> None:
    session = model.new_session()
    with pytest.raises(PromptTooLong, match=r"300 tokens.*256") as refused:
        Answer(session, model.tokenizer, [1] * 300, GREEDY)
    assert "new chat" in refused.value.remedy
    assert session.tokens == []


@pytest.mark.parametrize(("prompt", "limit"), [([], 0), ([1], -1)])
def test_invalid_requests_are_refused(model: LoadedModel, prompt: list[int], limit: int) -> None:
    with pytest.raises(RequestError):
        Answer(model.new_session(), model.tokenizer, prompt, GREEDY, max_tokens=limit)


def test_a_stop_string_ends_the_answer_before_it(model: LoadedModel) -> None:
    text, _, _ = answer(model, [5, 6, 7], max_tokens=40)
    stop = text[10:13]
    cut, tokens, finished = answer(model, [5, 6, 7], max_tokens=40, stop=(stop, "never"))
    assert cut == text[: text.index(stop)]
    assert finished.reason is FinishReason.STOP
    assert len(tokens) <= 40


def test_cancel_in_prefill_keeps_whole_chunks(model: LoadedModel) -> None:
    session = model.new_session()
    calls = iter(range(1000))
    cut = Answer(session, model.tokenizer, [3] * 200, GREEDY, cancelled=lambda: next(calls) > 1)
    events = list(cut.events())
    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.CANCELLED
    assert events[-1].generated_tokens == 0
    assert (
        answer(model, [3] * 200, max_tokens=5, session=session)[1]
        == answer(model, [3] * 200, max_tokens=5)[1]
    )


def test_cancel_in_decode_keeps_the_text_so_far(model: LoadedModel) -> None:
    session, text, seen = model.new_session(), "", [0]
    cut = Answer(
        session, model.tokenizer, [5, 6, 7], GREEDY, max_tokens=200, cancelled=lambda: seen[-1] >= 5
    )
    for event in cut.events():
        if isinstance(event, Text):
            text += event.text
            seen.append(event.generated_tokens)
    assert isinstance(event, Finished)
    assert event.reason is FinishReason.CANCELLED
    assert 5 <= event.generated_tokens <= 7
    assert text
    full = answer(model, [5, 6, 7], max_tokens=30)[0]
    assert full.startswith(text)


def test_tokens_without_text_are_counted_as_they_come(model: LoadedModel) -> None:
    made = Answer(model.new_session(), model.tokenizer, [5, 6, 7], GREEDY, max_tokens=60)
    pieces = [event for event in made.events() if isinstance(event, Text)]
    assert any(not piece.text for piece in pieces), "some token must end inside a character"
    assert [piece.generated_tokens for piece in pieces] == list(range(1, 61))
    assert [piece.context_used for piece in pieces] == list(range(4, 64))


def test_tokens_of_text_buffered_for_a_stop_string_are_counted(model: LoadedModel) -> None:
    text, tokens, _ = answer(model, [5, 6, 7], max_tokens=40)
    made = Answer(
        model.new_session(), model.tokenizer, [5, 6, 7], GREEDY, max_tokens=40, stop=(text + "x",)
    )
    pieces = [event for event in made.events() if isinstance(event, Text)]
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.generated_tokens for piece in pieces[:40]] == list(range(1, 41))
    assert made.tokens == tokens


def test_progress_counts_up_to_the_prompt(model: LoadedModel) -> None:
    whole = Answer(model.new_session(), model.tokenizer, [3] * 200, GREEDY, max_tokens=1)
    events = list(whole.events())
    progress = [event.done_tokens for event in events if isinstance(event, PromptProgress)]
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
        out += filtered.push(text[start : start + size])
        if filtered.stopped:
            break
    assert out + filtered.flush() == kept
    assert filtered.stopped == (kept != text)


def test_interrupted_answer_omits_an_incomplete_character(model: LoadedModel) -> None:
    whole = answer(model, [5, 6, 7], max_tokens=60)[1]
    pieces = [model.tokenizer.piece(token) for token in whole]
    starts = [at for at, piece in enumerate(pieces) if b"\xc2" <= piece[-1:] <= b"\xf4"]
    assert starts, "the model must begin a character somewhere"
    for at in starts:
        text, tokens, finished = answer(model, [5, 6, 7], max_tokens=at + 1)
        assert finished.reason is FinishReason.LENGTH
        assert tokens == whole[: at + 1]
        stream = model.tokenizer.stream()
        assert text == "".join(map(stream.push, tokens))
        assert stream.flush() == "\ufffd"


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
