"""What a long document takes: tokens of the chat, speed, and parts of an engine that reads less."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.documents.long_documents import LongAnswer, LongRequest, step_words
from app.chat.requests import running_answer
from app.chat.requests.context_room import bytes_per_token
from app.domain.deltas import (
    AnswerEnd,
    AnswerFailed,
    AnswerUsage,
    Delta,
    EndReason,
    SectionDelta,
    StepDelta,
    TextDelta,
)
from app.domain.documents import PageStart, PageUnit, Reads
from app.domain.file_words import section_words
from app.domain.message import MessageState
from app.domain.parts import ErrorPart, FilePart, SectionPart
from app.domain.remote_fault import RemoteFault, RemoteFaultKind
from engine import FinishReason
from long_stage import WISH, ask, asked, document, last, read_part, settle, stages, write
from scripted_door import Answer, ScriptedDoor, collect
from stage import Stage


@pytest.fixture
def make(qtbot: QtBot, tmp_path: Path) -> Iterator[Callable[[], Stage]]:
    yield from stages(tmp_path / "data")


def test_the_meter_shows_the_chat_and_not_what_all_requests_took(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    ask(stage, tmp_path, document(4 * context))
    while "<part " in asked(stage).turns[-1].text:
        write(stage, "Some words of a summary.")
        assert stage.state.context_used < 40
    write(stage, "The whole of it.")
    answer = last(stage)
    used = stage.state.context_used
    assert 0 < used < answer.prompt_tokens  # of all requests together
    assert answer.chat_tokens == used
    stage.controller.send("And now?")
    settle(stage)
    write(stage, "Nothing.")
    after = last(stage)
    assert after.prompt_tokens + after.generated_tokens == stage.state.context_used
    before = stage.state.context_used
    stage.wait_until_idle()
    stage = make()
    stage.controller.open_conversation(answer.conversation)
    stage.wait_until_idle()
    assert stage.state.context_used == before
    assert next(m for m in stage.state.messages if m.id == answer.id).chat_tokens == used


def test_the_meter_of_one_that_was_stopped_or_failed_is_of_the_chat_too(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    ask(stage, tmp_path, document(4 * context))
    write(stage, "First.")
    write(stage, "Second.")
    stage.engine.fail("broken", "try again")
    stage.drain()
    assert last(stage).state is MessageState.FAILED
    assert 0 < stage.state.context_used < last(stage).prompt_tokens
    stage.controller.continue_answer(last(stage).id)
    settle(stage)
    write(stage, "Third.")
    stage.controller.stop()
    stage.engine.finish(FinishReason.CANCELLED)
    stage.drain()
    assert last(stage).state is MessageState.STOPPED
    assert 0 < stage.state.context_used < context // 8


def test_a_prompt_of_many_requests_says_nothing_about_bytes_of_a_token(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    stage.controller.send("word " * 500)
    settle(stage)
    write(stage, "Yes.")
    before = bytes_per_token(stage.state.messages)
    ask(stage, tmp_path, document(4 * context))
    while last(stage).state is MessageState.STREAMING:
        write(stage, "Done.")
    assert bytes_per_token(stage.state.messages) == before


def test_the_speed_is_of_the_request_in_progress(
    make: Callable[[], Stage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, now = make(), [time.monotonic()]
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    ask(stage, tmp_path, document(3 * context))
    monkeypatch.setattr(running_answer.time, "monotonic", lambda: now[0])
    speeds: list[float] = []
    for _ in range(2):
        for token in range(1, 13):
            now[0] += 0.3
            stage.engine.write("word ", token)
            stage.drain()
        speeds.append(stage.state.speed)
        monkeypatch.undo()
        stage.engine.finish()
        settle(stage)
        now[0] += 60  # for reading the next part
        monkeypatch.setattr(running_answer.time, "monotonic", lambda: now[0])
    assert speeds[0] > 1
    assert speeds[1] == pytest.approx(speeds[0])


FILE = FilePart("a.txt", document(3000), reads=Reads.SUMMARY)


def request(file: FilePart = FILE, done: tuple[SectionPart, ...] = ()) -> LongRequest:
    return LongRequest((file,), WISH, done, "")


def made(deltas: list[Delta]) -> list[SectionPart]:
    return [each.section for each in deltas if isinstance(each, SectionDelta)]


def test_an_engine_that_reads_less_than_it_says_gets_smaller_parts() -> None:
    def answer(text: str) -> Answer:
        if len(text.split()) > 700:
            return ErrorPart(RemoteFault(RemoteFaultKind.CONTEXT, tokens=2000, most_tokens=700))
        return "Short."

    door = ScriptedDoor(answer, context=2048)
    deltas = collect(LongAnswer(request(), door))
    parts = made(deltas)
    assert "".join(FILE.text[part.start : part.end] for part in parts) == FILE.text
    assert [part.number for part in parts] == list(range(1, len(parts) + 1))
    assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == "Short."
    assert deltas[-1] == AnswerEnd(EndReason.END)


def test_an_engine_that_reads_nothing_is_given_up() -> None:
    fault = RemoteFault(RemoteFaultKind.CONTEXT)
    door = ScriptedDoor(lambda _: ErrorPart(fault), context=4096)
    with pytest.raises(AnswerFailed) as failed:
        collect(LongAnswer(request(), door))
    assert failed.value.error.fault == fault
    assert len(door.asked) <= 4


def test_a_part_that_fails_leaves_what_the_others_took() -> None:
    fault = RemoteFault(RemoteFaultKind.CUT)
    door = ScriptedDoor(lambda text: ErrorPart(fault) if 'number="2"' in text else "x", 2048)
    got: list[Delta] = []
    with pytest.raises(AnswerFailed):
        collect(LongAnswer(request(), door), got)
    assert len(made(got)) == 1
    used = got[-1]
    assert isinstance(used, AnswerUsage)
    assert used.prompt_tokens == len(door.asked[0].split())
    assert 0 < used.chat_tokens < 20
    again = ScriptedDoor(lambda _: "x", 2048)
    deltas = collect(LongAnswer(request(done=tuple(made(got))), again))
    assert read_part(again.asked[0]).split()[0] == read_part(door.asked[1]).split()[0]
    assert deltas[-1] == AnswerEnd(EndReason.END)


def test_a_rewritten_part_is_at_most_three_times_as_long() -> None:
    file = FilePart("a.txt", document(120), reads=Reads.REWRITE)
    door = ScriptedDoor(lambda _: "x", 8192)
    collect(LongAnswer(request(file), door))
    [question], [most] = door.asked, door.most
    assert 3 * 120 <= most <= 3 * len(question.split())


def test_the_time_that_is_left_is_said_from_the_second_part_on() -> None:
    deltas = collect(LongAnswer(request(), ScriptedDoor(lambda _: "Short.", 2048)))
    steps = [each for each in deltas if isinstance(each, StepDelta) and each.number]
    assert len(steps) > 2
    assert steps[0].seconds == 0
    assert all(step.seconds > 0 for step in steps[1:])
    assert step_words(StepDelta(2, 4, seconds=31)) == "Reading part 2 of 4, 30 s left…"
    assert step_words(StepDelta(2, 4)) == "Reading part 2 of 4…"


def test_parts_of_thousands_of_pages_have_their_pages() -> None:
    pages = tuple(PageStart(str(n + 1), n * 10) for n in range(3000))
    text = "one two\n\n\f" * 3000
    file = FilePart("a.pdf", text, unit=PageUnit.PAGE, pages=pages, reads=Reads.REWRITE)
    parts = made(collect(LongAnswer(request(file), ScriptedDoor(lambda _: "x", 2048))))
    assert "".join(text[part.start : part.end] for part in parts) == text
    assert sum(part.page_count for part in parts) == 3000
    assert parts[0].pages.startswith("1-")
    assert parts[-1].pages.endswith("-3000")


@pytest.mark.parametrize("reads", [Reads.SUMMARY, Reads.REWRITE])
def test_a_document_of_pictures_is_one_sentence(reads: Reads) -> None:
    file = FilePart("scan.pdf", "\n\n\f\n\n", unit=PageUnit.PAGE, reads=reads)
    door = ScriptedDoor(lambda _: "x")
    with pytest.raises(AnswerFailed) as failed:
        collect(LongAnswer(request(file), door))
    assert failed.value.error.message == "There is no text in scan.pdf."
    assert not door.asked


def test_nothing_is_put_together_of_nothing() -> None:
    door = ScriptedDoor(lambda _: "")
    with pytest.raises(AnswerFailed) as failed:
        collect(LongAnswer(request(), door))
    assert failed.value.error.message == "The model wrote nothing about any part."
    assert all("<part " in text for text in door.asked)


def test_a_part_that_repeats_itself_is_marked_and_the_others_are_made() -> None:
    door = ScriptedDoor(lambda text: EndReason.REPETITION if 'number="2"' in text else "x", 2048)
    parts = made(collect(LongAnswer(request(), door)))
    assert [part.cut for part in parts] == [part.number == 2 for part in parts]
    assert section_words(parts[1]).endswith("not complete")
