"""Whether the next prompt fits is known before it is sent, and what helps where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.sending import fit
from app.chat.sending.fit import NOTICE
from app.domain.chat_settings import ChatSettings
from app.domain.documents import Reads
from app.domain.model_ref import Local, Remote
from app.state.attachments import Attachment, Editing, FitEstimate
from app.state.chat import ModelFile, ServedModel
from app.state.tools import ToolRow
from engine import (
    ApplyTemplate,
    ContextPolicy,
    CountTokens,
    Failed,
    Fault,
    FaultKind,
    Load,
    ModelFacts,
    TemplateApplied,
)
from fakes import MODEL
from stage import Stage, until
from tool_stage import NOTE

Write = Callable[[str, str], Path]


@pytest.fixture
def write(stage: Stage, tmp_path: Path) -> Write:
    """Writes files, with a started stage whose model has a context of 8,192 tokens."""
    stage.ready(MODEL)

    def make(name: str, text: str) -> Path:
        path = tmp_path / "files" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return make


def settled(stage: Stage) -> FitEstimate | None:
    """The estimate when everything has been counted."""
    for _ in range(3):
        stage.wait_until_idle()
        stage.controller.fit._update()
        stage.wait_until_idle()
    return stage.states.attachments.fit


def attach(stage: Stage, *paths: Path) -> list[Attachment]:
    stage.controller.attachments.attach(paths)
    settled(stage)
    return list(stage.states.attachments.of(stage.state.current))


def facts(path: Path, *, trained: int = 32_768, memory: int = 10) -> Callable[..., ModelFacts]:
    """Facts of models with this training context, in which `memory` bytes are free."""

    def inspect(path: Path, context: int = 0, *_: object, **__: object) -> ModelFacts:
        return ModelFacts(
            path, path.stem, context_model=trained, context=context or 2048,
            memory_bytes=9, cache_bytes=context * 100, available_bytes=memory,
        )  # fmt: skip

    return inspect


def test_nothing_is_counted_for_a_short_message(stage: Stage, write: Write) -> None:
    stage.window.composer.insert("Why is the sky blue?")
    assert settled(stage) is None
    assert stage.controller.send("Why is the sky blue?")
    assert stage.engine.count(ApplyTemplate) == 0


def test_the_whole_prompt_is_counted_with_the_files(stage: Stage, write: Write) -> None:
    [one] = attach(stage, write("one.txt", "word " * 100))
    estimate = settled(stage)
    assert estimate is not None
    request = stage.engine.last(ApplyTemplate)
    assert request.measures_cache
    assert estimate.tokens == sum(len(turn.text.split()) for turn in request.turns)
    assert (estimate.context, estimate.fits, estimate.approximate) == (8192, True, False)
    assert one.tokens == estimate.file_tokens == 100 + 3  # and its borders
    counts = stage.engine.count(ApplyTemplate)
    stage.controller.fit.type("And a question")
    assert settled(stage) != estimate
    assert stage.engine.count(ApplyTemplate) == counts  # far from the limit it is not counted again


def test_the_prompt_is_counted_again_with_the_tools_that_are_switched_on(
    stage: Stage, write: Write
) -> None:
    attach(stage, write("one.txt", "word " * 100))
    settled(stage)
    stage.states.tools.set_rows([ToolRow(NOTE)], "")
    settings = replace(stage.state.settings(None), tools=(NOTE.id,))
    stage.controller.chat_settings.change(None, settings)
    settled(stage)
    assert [tool.name for tool in stage.engine.last(ApplyTemplate).tools] == [NOTE.name]


def test_tokens_of_a_file_are_counted_once_for_each_model(stage: Stage, write: Write) -> None:
    path = write("one.txt", "A\fB\fC")
    [one] = attach(stage, path)
    stage.controller.attachments.remove(one.id)
    attach(stage, path)
    count = stage.engine.count(CountTokens)
    assert count == 1
    [one] = stage.states.attachments.of(None)
    stage.controller.attachments.set_pages(one.id, [1])
    settled(stage)
    assert stage.engine.count(CountTokens) == count + 1


def test_files_are_counted_again_by_another_model(stage: Stage, write: Write) -> None:
    [one] = attach(stage, write("one.txt", "word " * 100))
    assert (one.tokens, one.approximate) == (103, False)
    stage.controller.load_model(Path("/models/Other-1B.gguf"))
    settled(stage)
    [one] = stage.states.attachments.of(None)
    assert one.approximate  # it is loading
    stage.engine.finish_load("Other")
    settled(stage)
    [one] = stage.states.attachments.of(None)
    assert (one.tokens, one.approximate) == (103, False)
    assert stage.engine.count(CountTokens) == 2


def test_a_prompt_that_does_not_fit_is_refused_with_ways_out(
    stage: Stage, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path("/models/Other-3B.gguf")
    stage.state.set_installed([ModelFile(MODEL, "Small", 1), ModelFile(other, "Other", 1)])
    monkeypatch.setattr(fit, "inspect_model", facts(MODEL))
    attach(stage, write("long.txt", "word " * 9000))
    estimate = settled(stage)
    assert estimate is not None
    assert not estimate.fits
    assert not stage.states.attachments.refused
    assert not stage.controller.send("Sum it up")  # nothing of it is sent, nor lost
    assert settled(stage) is not None
    assert not stage.controller.send("Sum it up")
    assert stage.states.attachments.refused
    assert not stage.state.conversations
    now = stage.states.attachments.fit
    assert now is not None
    assert now.longer_context is not None
    assert now.longer_context.tokens % 1024 == 0
    assert now.longer_context.tokens >= now.tokens + now.answer_tokens
    assert now.longer_context.fits
    assert now.longer_context.size_bytes == now.longer_context.tokens * 100
    assert [(each.name, each.model) for each in now.models] == [("Other", Local(other))]
    stage.controller.fit.close()
    assert not stage.states.attachments.refused


def test_the_ways_out_lead_to_a_prompt_that_fits(
    stage: Stage, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "inspect_model", facts(MODEL))
    [long] = attach(stage, write("long.txt", "word " * 9000 + "\f" + "word " * 10))
    refused = settled(stage)
    assert refused is not None
    assert refused.longer_context is not None
    stage.controller.fit.use_longer_context()
    own = stage.controller.library.defaults.own(MODEL)
    assert own.context == refused.longer_context.tokens
    assert stage.engine.last(Load).context == own.context
    stage.engine.finish_load()
    stage.wait_until_idle()
    stage.controller.attachments.set_pages(long.id, [1])
    chosen = settled(stage)
    assert chosen is not None
    assert chosen.fits
    stage.controller.attachments.set_reads(long.id, Reads.PASSAGES)
    passages = settled(stage)
    assert passages is not None
    assert 1024 < passages.tokens < 4096  # there is room for what will be found
    assert stage.controller.send("Sum it up")


def test_another_model_is_loaded_with_a_context_that_fits(
    stage: Stage, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path("/models/Other-3B.gguf")
    stage.state.set_installed([ModelFile(other, "Other", 1)])
    monkeypatch.setattr(fit, "inspect_model", facts(MODEL))
    attach(stage, write("long.txt", "word " * 9000))
    estimate = settled(stage)
    assert estimate is not None
    [found] = estimate.models
    stage.controller.fit.use_model(found.model)
    load = stage.engine.last(Load)
    assert (load.path, load.context) == (other, found.context)


@pytest.mark.parametrize(("trained", "memory"), [(9_000, 10), (32_768, 8)])
def test_only_what_is_possible_is_offered(
    stage: Stage, write: Write, monkeypatch: pytest.MonkeyPatch, trained: int, memory: int
) -> None:
    """A context that was trained, and memory that is free."""
    stage.state.set_installed([ModelFile(Path("/models/Other.gguf"), "Other", 1)])
    monkeypatch.setattr(fit, "inspect_model", facts(MODEL, trained=trained, memory=memory))
    attach(stage, write("long.txt", "word " * 9000))
    estimate = settled(stage)
    assert estimate is not None
    assert estimate.models == ()
    longer = estimate.longer_context
    assert (longer is None) == (trained == 9_000)
    assert longer is None or not longer.fits


def test_a_long_typed_text_is_counted_before_it_is_sent(stage: Stage, write: Write) -> None:
    stage.engine.counts = False
    text = "word " * 3_000
    assert not stage.controller.send(text)
    assert "counted" in stage.state.notices[NOTICE].sentence
    asked = stage.engine.last(ApplyTemplate)
    stage.engine.deliver(TemplateApplied(asked.request, "", 3_000))
    stage.drain()
    assert NOTICE not in stage.state.notices
    assert stage.controller.send(text)


@pytest.mark.parametrize("changed", [False, True])
def test_a_message_is_sent_once_it_is_counted_unless_it_has_changed(
    stage: Stage, write: Write, *, changed: bool
) -> None:
    composer = stage.window.composer
    stage.engine.counts = False
    text = "word " * 2_000
    composer.set_text(text)
    composer.submit()
    asked = stage.engine.last(ApplyTemplate)
    assert stage.state.messages == ()
    assert composer.text() == text
    if changed:
        composer.set_text(f"{text}more")
    stage.engine.deliver(TemplateApplied(asked.request, "", 3_000))
    stage.drain()
    assert bool(stage.state.messages) is not changed
    assert bool(composer.text()) is changed


def test_a_text_that_the_model_cannot_read_at_once_is_not_sent(stage: Stage, write: Write) -> None:
    long = "word " * 9_000
    stage.window.composer.set_text(long)
    stage.window.composer.typed.emit(long)
    until(lambda: stage.states.attachments.fit is not None)
    assert not stage.controller.send(long)
    assert stage.states.attachments.refused
    assert not stage.state.conversations
    assert stage.window.composer.text() == long, "nothing typed is lost"
    shorter = "word " * 7_000
    stage.window.composer.set_text(shorter)
    until(lambda: (now := stage.states.attachments.fit) is not None and now.fits)
    settled(stage)
    assert stage.controller.send(shorter)


def test_a_prompt_that_cannot_be_counted_is_sent(stage: Stage, write: Write) -> None:
    stage.engine.counts = False
    text = "word " * 3_000
    assert not stage.controller.send(text)
    stage.engine.deliver(Failed(stage.engine.last(ApplyTemplate).request, "No.", "Do nothing."))
    stage.drain()
    assert stage.controller.send(text)


def test_a_message_that_surely_fits_is_sent_before_it_is_counted(
    stage: Stage, write: Write
) -> None:
    stage.engine.counts = False
    stage.controller.attachments.attach([write("short.txt", "A short text")])
    for _ in range(3):
        stage.wait_until_idle()
    assert stage.controller.send("Sum it up")


def test_a_prompt_too_long_for_any_choice_of_turns_has_its_length(
    stage: Stage, write: Write
) -> None:
    stage.controller.chat_settings.change(None, ChatSettings(policy=ContextPolicy.DROP_OLDEST))
    stage.engine.counts = False
    stage.controller.attachments.attach([write("long.txt", "word " * 9000)])
    until(lambda: stage.engine.count(ApplyTemplate) == 1)
    fault = Fault(FaultKind.MESSAGE_TOO_LONG, context=9_500, most_context=8_192)
    request = stage.engine.last(ApplyTemplate).request
    stage.engine.deliver(Failed(request, "Too long.", "", fault=fault))
    stage.drain()
    estimate = stage.states.attachments.fit
    assert estimate is not None
    assert (estimate.tokens, estimate.fits) == (9_500, False)


def test_a_file_that_falls_out_of_the_context_is_named(stage: Stage, write: Write) -> None:
    stage.controller.chat_settings.change(None, ChatSettings(policy=ContextPolicy.DROP_OLDEST))
    attach(stage, write("report.txt", "word " * 100))
    stage.controller.send("First")
    stage.engine.write("Answer")
    stage.engine.finish()
    stage.window.composer.set_text("Second")
    until(lambda: stage.controller.fit._typed == "Second")
    settled(stage)
    stage.engine.counts = False
    before = stage.engine.count(ApplyTemplate)
    stage.controller.fit._counted = None
    stage.controller.fit._update()
    until(lambda: stage.engine.count(ApplyTemplate) == before + 1)
    request = stage.engine.last(ApplyTemplate).request
    stage.engine.deliver(TemplateApplied(request, "", 50, dropped_turns=2))
    stage.drain()
    estimate = stage.states.attachments.fit
    assert estimate is not None
    assert estimate.forgotten == ("report.txt",)
    line = stage.window.chat.fit_line
    assert line.isVisible()
    assert "report.txt" in line.reasons.text()


def test_what_is_cached_is_shown(stage: Stage, write: Write) -> None:
    stage.engine.counts = False
    stage.controller.attachments.attach([write("report.txt", "word " * 100)])
    until(lambda: stage.engine.count(ApplyTemplate) == 1)
    request = stage.engine.last(ApplyTemplate).request
    stage.engine.deliver(TemplateApplied(request, "", 150, 0, 120, 0.5))
    stage.drain()
    estimate = stage.states.attachments.fit
    assert estimate is not None
    assert (estimate.cached_tokens, estimate.seconds) == (120, 0.5)


def send_counted(stage: Stage, text: str) -> None:
    stage.window.composer.set_text(text)
    stage.window.composer.submit()
    until(lambda: not stage.window.composer.text())  # it is sent once it is counted
    stage.drain()


def finish(stage: Stage, text: str) -> None:
    stage.engine.write(text)
    stage.engine.finish()
    settled(stage)


def test_an_edited_message_that_does_not_fit_has_the_four_ways(stage: Stage, write: Write) -> None:
    send_counted(stage, "word " * 4000)
    finish(stage, "Because.")
    send_counted(stage, "Why?")
    finish(stage, "Because.")
    message = stage.state.messages[2].id
    transcript, line = stage.window.transcript, stage.window.chat.fit_line
    transcript.edit_message(message)
    assert transcript.editing.editor is not None
    stage.controller.attachments.attach([write("long.txt", "word " * 3600)], editing=message)
    settled(stage)
    transcript.editing.editor.submit()
    assert stage.state.notices[NOTICE].sentence.startswith("The length of this message is still")
    settled(stage)
    estimate = stage.states.attachments.fit
    assert estimate is not None
    assert (estimate.fits, estimate.editing) == (False, Editing(message))
    assert line.isVisible()
    assert line.words.text().startswith("All of it has 7,6")
    assert not stage.state.busy
    assert transcript.editing.message_id == message  # what was typed is there

    line.passages_button.click()
    settled(stage)
    [file] = stage.states.attachments.of(Editing(message))
    assert file.part is not None
    assert file.part.reads is Reads.PASSAGES
    assert transcript.editing.editor is not None
    transcript.editing.editor.submit()
    settled(stage)
    assert stage.state.messages[2].siblings == 2
    assert stage.state.busy
    assert line.isHidden()


def test_a_given_up_edit_shows_no_ways_any_more(stage: Stage, write: Write) -> None:
    send_counted(stage, "Why?")
    finish(stage, "Because.")
    message = stage.state.messages[0].id
    stage.window.transcript.edit_message(message)
    editor = stage.window.transcript.editing.editor
    assert editor is not None
    stage.controller.attachments.attach([write("long.txt", "word " * 9000)], editing=message)
    settled(stage)
    editor.submit()
    settled(stage)
    assert stage.window.chat.fit_line.isVisible()
    assert stage.window.chat.fit_line.words.text().startswith("long.txt has 9,003 tokens; Small")
    editor = stage.window.transcript.editing.editor
    assert editor is not None
    editor.cancelled.emit()
    settled(stage)
    assert stage.window.chat.fit_line.isHidden()


def test_a_message_that_waits_is_counted_as_a_new_one_is(stage: Stage, write: Write) -> None:
    send_counted(stage, "word " * 4000)
    attach(stage, write("other.txt", "word " * 3600))
    assert stage.state.busy
    stage.window.composer.set_text("And?")
    stage.window.composer.submit()  # its length is not known
    until(stage.window.chat.fit_line.isVisible)
    settled(stage)
    assert stage.window.composer.text() == "And?"
    assert not stage.state.outbox.get(stage.state.current)


def test_a_message_that_waited_is_counted_again_with_the_answer(stage: Stage, write: Write) -> None:
    send_counted(stage, "word " * 4000)
    long = "word " * 2900
    send_counted(stage, long)
    chat = stage.state.current
    assert [each.held for each in stage.state.outbox[chat]] == [False]
    finish(stage, "word " * 500)
    until(lambda: NOTICE in stage.state.notices)
    assert [each.held for each in stage.state.outbox[chat]] == [True]
    assert stage.state.notices[NOTICE].sentence.startswith("The waiting message has 7,4")
    assert not stage.state.busy

    stage.controller.navigation.new()
    other = "word " * 1500
    send_counted(stage, "word " * 4000)
    send_counted(stage, other)
    finish(stage, "Because.")
    until(lambda: not stage.state.outbox.get(stage.state.current))
    assert len(stage.state.messages) == 4  # it was counted, and sent then


def test_nothing_is_counted_during_an_answer(stage: Stage, write: Write) -> None:
    stage.controller.send("Why?")
    stage.engine.write("Because")
    stage.drain()
    counts = stage.engine.count(ApplyTemplate), stage.engine.count(CountTokens)
    attach(stage, write("one.txt", "word " * 100))
    assert (stage.engine.count(ApplyTemplate), stage.engine.count(CountTokens)) == counts
    stage.engine.finish()
    assert settled(stage) is not None


def test_a_model_elsewhere_is_estimated(stage: Stage, write: Write) -> None:
    far = Remote("c", "far-model")
    stage.state.set_served([ServedModel(far, "Far", "Server", "localhost:1", context=1000)])
    settings = replace(stage.state.settings(None), model=far)
    stage.controller.chat_settings.change(None, settings)
    [one] = attach(stage, write("one.txt", "word " * 2000))
    estimate = settled(stage)
    assert estimate is not None
    assert estimate.approximate
    assert one.approximate
    assert one.tokens is not None
    assert 2000 < one.tokens < 4000
    assert (estimate.context, estimate.fits) == (1000, False)
    assert stage.engine.count(ApplyTemplate) == 0


def test_chats_with_one_document_share_the_beginning_of_their_prompts(
    stage: Stage, write: Write
) -> None:
    """Instructions, then the document, then the question: what is cached of one serves the other."""
    path = write("report.txt", "word " * 100)
    prompts: list[str] = []
    for question in ("Who?", "Where?"):
        stage.controller.new_conversation()
        attach(stage, path)
        assert stage.controller.send(question)
        prompts.append("\n".join(turn.text for turn in stage.engine.last_generate.turns))
        stage.engine.finish()
        stage.wait_until_idle()
    assert prompts[0].removesuffix("Who?") == prompts[1].removesuffix("Where?")


def test_the_parts_of_a_long_document_and_their_time_are_known_before_it_is_sent(
    stage: Stage, write: Write
) -> None:
    text = "\n\n".join(f"Paragraph {n} of a report." for n in range(5_000))
    [attached] = attach(stage, write("long.txt", text))
    controller, state = stage.controller, stage.state
    controller.attachments.read_by_parts(Reads.SUMMARY)
    estimate = settled(stage)
    assert estimate is not None
    assert estimate.fits
    assert estimate.part_tokens == len(text.split())
    assert estimate.parts == -(-estimate.part_tokens // 6144)
    assert estimate.file_tokens == 0
    assert estimate.part_seconds == 0  # no answer has shown the speed
    [attached] = stage.states.attachments.of(state.current)
    controller.attachments.remove(attached.id)
    assert controller.send("Hello")
    stage.engine.write("Hello.")
    stage.engine.finish()
    stage.wait_until_idle()
    answer = state.messages[-1]
    assert answer.details is not None
    assert answer.details.prompt_seconds > 0
    attach(stage, write("long.txt", text))
    controller.attachments.read_by_parts(Reads.SUMMARY)
    estimate = settled(stage)
    assert estimate is not None
    reading = (answer.prompt_tokens - answer.details.reused_tokens) / answer.details.prompt_seconds
    writing = answer.generated_tokens / answer.details.decode_seconds
    least = estimate.part_tokens / reading + estimate.parts * 500 / writing
    most = 1.5 * estimate.part_tokens / reading + 2 * estimate.parts * 1024 / writing
    assert least < estimate.part_seconds < most
