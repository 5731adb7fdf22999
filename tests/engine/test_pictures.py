"""Pictures from a turn to an answer: a model and its encoder from files, at the engine's door."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import seeing_files
from engine import (
    ApplyTemplate,
    CacheType,
    Cancelled,
    Chat,
    ContextPolicy,
    CountTokens,
    Event,
    Failed,
    Finished,
    FinishReason,
    ImagePart,
    ModelMoved,
    ModelUnloaded,
    Role,
    TemplateApplied,
    TextPart,
    TokensCounted,
    Turn,
    Unload,
)
from engine.core.runner import Runner
from engine.loading import sight
from engine.vision.pairing import EncoderFile
from engine_bench import GREEDY, Bench, answer_text, computed_prompt_tokens, finished
from seeing_files import Reader

CAT, DOG = ImagePart(b"cat"), ImagePart(b"dog")
ROWS = 12  # of a picture


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeing_files.write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[Reader]:
    """The readers of pictures that loaded models have opened."""
    made: list[Reader] = []

    def open_source(config: object) -> Reader:
        made.append(Reader(config))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(sight, "PictureReader", open_source)
    return made


@pytest.fixture
def seeing(bench: Bench, path: Path, readers: list[Reader]) -> Bench:
    """An engine with the model that sees."""
    assert bench.load(path, cache=CacheType.F32).encoder == path.with_name("mmproj-tiny.gguf")
    return bench


def shown(*pictures: ImagePart, text: str = "what is it") -> Turn:
    return Turn(Role.USER, (*pictures, TextPart(text)))


def ask(bench: Bench, number: int, *turns: Turn, **options: object) -> list[Event]:
    options = {"sampling": GREEDY, "max_tokens": 8, **options}
    bench.send(number, Chat(turns, **options))  # type: ignore[arg-type]
    return bench.until(Finished, Failed)


def test_the_same_picture_gives_the_same_answer_and_another_one_another(
    seeing: Bench, readers: list[Reader]
) -> None:
    first, again = (ask(seeing, number, shown(CAT)) for number in (1, 2))
    assert answer_text(first) == answer_text(again) != ""
    assert finished(first).prompt_tokens > ROWS
    assert computed_prompt_tokens(first) == finished(first).prompt_tokens
    other = ask(seeing, 3, shown(DOG))
    assert answer_text(other) != answer_text(first)
    assert finished(other).prompt_tokens == finished(first).prompt_tokens
    blind = ask(seeing, 4, Turn(Role.USER, "what is it"))
    assert answer_text(blind) != answer_text(first)
    assert [one.source for one in readers[0].reads] == [b"cat", b"cat", b"dog"]


def test_what_precedes_and_follows_a_picture_is_reused_with_it(seeing: Bench) -> None:
    turn = shown(CAT, text="the quick brown fox " * 60)
    first, again = (ask(seeing, number, turn) for number in (1, 2))
    assert finished(again).reused_tokens > 2 * ROWS
    assert finished(first).reused_tokens == 0
    assert answer_text(again) == answer_text(first)
    other = ask(seeing, 3, shown(DOG, text="the quick brown fox " * 60))
    assert finished(other).reused_tokens == 0


def test_a_picture_of_an_earlier_turn_is_still_seen(seeing: Bench, path: Path) -> None:
    answer = answer_text(ask(seeing, 1, shown(CAT)))
    history = Turn(Role.ASSISTANT, answer), Turn(Role.USER, "are you sure")
    later = [answer_text(ask(seeing, 2, shown(one), *history)) for one in (CAT, DOG)]
    assert later[0] != later[1]
    again = answer_text(ask(seeing, 3, shown(CAT), *history))
    assert again == later[0]
    seeing.load(path, 4, CacheType.F32)  # nothing is cached, and pictures get other ids
    assert answer_text(ask(seeing, 5, shown(DOG), *history)) == later[1]
    assert answer_text(ask(seeing, 6, shown(CAT), *history)) == later[0]


def test_requests_at_once_have_the_answers_that_each_has_alone(seeing: Bench) -> None:
    asked = {
        10: (shown(CAT),),
        11: (shown(DOG, CAT),),
        12: (Turn(Role.USER, "no picture"),),
        13: (shown(ImagePart(b"bird")),),
    }
    options = {"sampling": GREEDY, "max_tokens": 24}
    for number, turns in asked.items():
        seeing.send(number, Chat(turns, **options))  # type: ignore[arg-type]
    events: list[Event] = []
    while sum(isinstance(one, Finished) for one in events) < len(asked):
        events += seeing.until(Finished)
    together = {at: answer_text([one for one in events if one.request == at]) for at in asked}
    alone = {
        number: answer_text(ask(seeing, 20, *turns, **options)) for number, turns in asked.items()
    }
    assert together == alone
    assert len(set(together.values())) == len(asked)


def test_a_picture_that_cannot_be_read_fails_its_request_alone(seeing: Bench) -> None:
    (*_, failed) = ask(seeing, 1, shown(CAT, ImagePart(b"broken")))
    assert isinstance(failed, Failed)
    assert failed.message == "The picture cannot be read."
    assert answer_text(ask(seeing, 2, shown(CAT)))


def test_reading_pictures_ends_with_the_request(
    seeing: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_reading, has_ended = threading.Event(), threading.Event()

    def read(reader: Reader, part: ImagePart, cancelled: Callable[[], bool]) -> None:
        is_reading.set()
        while not cancelled():
            threading.Event().wait(0.001)
        has_ended.set()
        raise Cancelled

    with monkeypatch.context() as patched:
        patched.setattr(Reader, "read", read)
        seeing.send(1, Chat((shown(CAT),), sampling=GREEDY))
        assert is_reading.wait(60)
        seeing.cancel(1)
        (*_, end) = seeing.until(Finished, Failed)
        assert isinstance(end, Finished)
        assert end.reason is FinishReason.CANCELLED
        assert has_ended.wait(60)
    assert answer_text(ask(seeing, 2, shown(CAT)))


def test_encoding_ends_with_the_request(seeing: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = EncoderFile.encode

    def cancelling(self: EncoderFile, pixels: object, checkpoint: Callable[[], None]) -> object:
        seeing.cancel(1)
        return encode(self, pixels, checkpoint)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(EncoderFile, "encode", cancelling)
        (*_, end) = ask(seeing, 1, shown(CAT))
    assert isinstance(end, Finished)
    assert end.reason is FinishReason.CANCELLED
    assert answer_text(ask(seeing, 2, shown(CAT)))


def test_an_interrupted_answer_about_a_picture_goes_on(seeing: Bench) -> None:
    whole = answer_text(ask(seeing, 1, shown(CAT), max_tokens=12))
    begun = answer_text(ask(seeing, 2, shown(CAT), max_tokens=5))
    rest = ask(seeing, 3, shown(CAT), Turn(Role.ASSISTANT, begun), max_tokens=7)
    assert begun + answer_text(rest) == whole
    (*_, failed) = ask(seeing, 4, shown(CAT), Turn(Role.ASSISTANT, (TextPart(begun), DOG)))
    assert isinstance(failed, Failed)
    assert failed.message == "An answer with a picture in it cannot be continued."


@pytest.mark.parametrize("after", [2, 6])
def test_an_answer_about_a_picture_goes_on_after_a_device_has_failed(
    after: int,
    seeing: Bench,
    monkeypatch: pytest.MonkeyPatch,
    readers: list[Reader],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    whole = answer_text(ask(seeing, 1, shown(CAT, DOG), max_tokens=12))
    ask(seeing, 2, shown(ImagePart(b"bird")))  # ids that a new registry would give to others
    step, calls = Runner.step, 0

    def failing(self: Runner, *operands: object) -> object:
        nonlocal calls
        calls += 1
        if calls == after:
            raise RuntimeError("CUDA error: unspecified launch failure")
        return step(self, *operands)  # type: ignore[arg-type]

    monkeypatch.setattr(Runner, "step", failing)
    monkeypatch.setattr(Runner, "is_of_device", lambda self, fault: "CUDA" in str(fault))
    events = ask(seeing, 3, shown(ImagePart(b"fish"), DOG), max_tokens=12)
    assert any(isinstance(one, ModelMoved) for one in events)
    assert answer_text(events) != whole
    monkeypatch.undo()
    monkeypatch.setattr(sight, "PictureReader", lambda config: readers[0])
    assert answer_text(ask(seeing, 4, shown(ImagePart(b"fish"), DOG), max_tokens=12)) == (
        answer_text(events)
    )
    assert answer_text(ask(seeing, 5, shown(CAT, DOG), max_tokens=12)) == whole
    assert readers[0].is_closed


def test_the_shown_prompt_has_a_placeholder_and_the_tokens_of_the_picture(seeing: Bench) -> None:
    turns = shown(CAT, text="the quick brown fox " * 60), Turn(Role.ASSISTANT, "yes")
    found = seeing.expect(1, ApplyTemplate((*turns, Turn(Role.USER, "why"))), TemplateApplied)
    assert found.text.count("<|image_pad|>") == 1
    assert "user\n<|vision_start|><|image_pad|><|vision_end|>the quick" in found.text
    blind = Turn(Role.USER, turns[0].text), *turns[1:], Turn(Role.USER, "why")
    without = seeing.expect(2, ApplyTemplate(blind), TemplateApplied)
    assert found.tokens == without.tokens + ROWS + 2
    ask(seeing, 3, *turns, Turn(Role.USER, "why"))
    measured = ApplyTemplate((*turns, Turn(Role.USER, "why")), measures_cache=True)
    assert seeing.expect(4, measured, TemplateApplied).cached_tokens > ROWS


def test_turns_with_pictures_are_left_out_by_their_tokens(seeing: Bench) -> None:
    many = tuple(ImagePart(f"picture {at}".encode()) for at in range(30))
    turns = shown(*many), Turn(Role.ASSISTANT, "yes"), shown(*many[:20])
    policy = ContextPolicy.DROP_OLDEST
    found = seeing.expect(1, ApplyTemplate(turns, policy=policy), TemplateApplied)
    assert found.dropped_turns == 2
    assert found.text.count("<|image_pad|>") == 20
    end = finished(ask(seeing, 2, *turns, policy=policy))
    assert end.prompt_tokens == found.tokens
    (*_, failed) = ask(seeing, 3, shown(*many, *turns[2].images, CAT, DOG), policy=policy)
    assert isinstance(failed, Failed)
    assert failed.message.startswith("This message is too long")


def test_a_model_without_an_encoder_says_that_it_sees_nothing(bench: Bench, llama: Path) -> None:
    assert bench.load(llama).encoder is None
    (*_, failed) = ask(bench, 2, shown(CAT))
    assert isinstance(failed, Failed)
    assert failed.message == "This model cannot see pictures."
    assert "mmproj" in failed.remedy


def test_the_weights_of_an_encoder_are_read_when_a_picture_comes(
    seeing: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.vision import pairing

    built: list[object] = []
    build = pairing.build_encoder
    monkeypatch.setattr(
        pairing, "build_encoder", lambda *given: built.append(given) or build(*given)
    )
    ask(seeing, 1, Turn(Role.USER, "no picture"))
    assert built == []
    ask(seeing, 2, shown(CAT))
    ask(seeing, 3, shown(DOG))
    assert len(built) == 1


def test_the_reader_is_closed_with_its_model(seeing: Bench, readers: list[Reader]) -> None:
    ask(seeing, 1, shown(CAT))
    assert not readers[0].is_closed
    seeing.expect(2, Unload(), ModelUnloaded)
    assert readers[0].is_closed


def test_an_encoder_that_cannot_be_read_fails_the_request_and_not_those_beside_it(
    bench: Bench, tmp_path: Path, readers: list[Reader]
) -> None:
    model = seeing_files.write_pair(tmp_path)
    bench.load(model, cache=CacheType.F32)
    model.with_name("mmproj-tiny.gguf").unlink()
    bench.send(1, Chat((Turn(Role.USER, "no picture"),), sampling=GREEDY, max_tokens=40))
    bench.send(2, Chat((shown(CAT),), sampling=GREEDY))
    ends = [bench.until(Finished, Failed)[-1] for _ in range(2)]
    failed, end = sorted(ends, key=lambda one: -one.request)
    assert isinstance(failed, Failed)
    assert failed.message.startswith("There is no file ")
    assert isinstance(end, Finished)
    assert end.generated_tokens == 40
    seeing_files.write_encoder(model.with_name("mmproj-tiny.gguf"), 256)
    readers[0].config = replace(readers[0].config, patch=5)
    (*_, failed) = ask(bench, 3, shown(CAT))
    assert isinstance(failed, Failed)
    assert failed.message.startswith("The picture encoder cannot read the picture: pixels [30, 40")
    readers[0].config = replace(readers[0].config, patch=7)
    assert answer_text(ask(bench, 4, shown(CAT, DOG)))


def test_the_tokens_of_pictures_are_counted_with_those_of_a_text(seeing: Bench) -> None:
    def tokens(number: int, *pictures: ImagePart, text: str = "") -> int:
        seeing.send(number, CountTokens(text, images=pictures))
        return seeing.until(TokensCounted)[-1].tokens  # type: ignore[union-attr]

    assert tokens(1, CAT) == ROWS
    assert tokens(2, CAT, DOG, text="what is it") == 2 * ROWS + tokens(3, text="what is it")
