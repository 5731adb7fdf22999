"""What else is done with an answer that was made part by part: again, edited, copied, deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.documents.rewritten import SAVED_NOTICE, saved_text
from app.documents.readers import docx
from app.documents.source import Source
from app.domain.documents import Reads
from app.domain.generation_settings import GenerationSettings
from app.domain.message import Message, MessageState
from app.domain.parts import SectionPart, clipboard_text
from app.domain.transfer import ExportFormat
from app.ui.transcript.message.message_tools import tools_for
from engine import FinishReason
from long_stage import ask, asked, document, last, read_part, sections, settle, stages, write
from stage import Stage, until


@pytest.fixture
def make(qtbot: QtBot, tmp_path: Path) -> Iterator[Callable[[], Stage]]:
    yield from stages(tmp_path / "data")


@pytest.fixture
def stage(make: Callable[[], Stage]) -> Stage:
    return make()


def context(stage: Stage) -> int:
    return stage.state.model.loaded.context if stage.state.model.loaded else 0


def summarise(stage: Stage, tmp_path: Path, parts: int = 2) -> Message:
    """A complete summary of a document."""
    ask(stage, tmp_path, document(parts * context(stage)))
    number = 0
    while "<part " in asked(stage).turns[-1].text:
        number += 1
        write(stage, f"Summary *{number}*.")
    write(stage, "The **whole**.")
    assert last(stage).state is MessageState.COMPLETE
    return last(stage)


def names(message: Message) -> list[str]:
    return [tool.name for tool in tools_for(message, busy=False)]


def test_a_summary_is_saved_with_its_parts(stage: Stage, tmp_path: Path) -> None:
    answer = summarise(stage, tmp_path)
    assert "save" in names(answer)
    assert stage.controller.rewritten.name(answer.id) == "report, summary.md"
    text = saved_text(answer.parts)
    assert text.startswith("The **whole**.\n\n## report.txt, part 1 of ")
    assert text.endswith("Summary *3*.")
    place = tmp_path / "summary.docx"
    stage.controller.rewritten.save(answer.id, place)
    stage.wait_until_idle()
    assert str(place) in stage.state.notices[SAVED_NOTICE].sentence
    found = docx.read(Source(place)).text
    assert found.startswith("The whole.")
    assert "## report.txt, part 2 of 3" in found


def test_the_tools_fit_what_there_is(stage: Stage, tmp_path: Path) -> None:
    answer = summarise(stage, tmp_path)
    assert {"copy", "edit", "continue", "regenerate", "save"} <= set(names(answer))
    stage.controller.new_conversation()
    ask(stage, tmp_path, document(context(stage)), Reads.REWRITE)
    write(stage, "One.")
    write(stage, "")
    while last(stage).state is MessageState.STREAMING:
        write(stage, "More.")
    found = {tool.name: tool for tool in tools_for(last(stage), busy=False)}
    assert found["continue"].text == "Read the parts again that are not complete"
    assert "edit" not in found  # there is no text to change
    stage.controller.continue_answer(last(stage).id)
    settle(stage)
    write(stage, "Two.")
    assert last(stage).state is MessageState.COMPLETE
    assert not {"continue", "edit"} & set(names(last(stage)))
    assert {"save", "copy", "regenerate"} <= set(names(last(stage)))


def test_the_copy_is_the_answer_or_the_rewritten_document(stage: Stage, tmp_path: Path) -> None:
    answer = summarise(stage, tmp_path)
    assert clipboard_text(answer.parts) == "The **whole**."
    rewritten = (SectionPart("# One"), SectionPart("Two", start=1, end=2))
    assert clipboard_text(rewritten) == "# One\n\nTwo"


def test_an_edited_summary_keeps_its_parts(stage: Stage, tmp_path: Path) -> None:
    answer = summarise(stage, tmp_path)
    assert stage.controller.edit(answer.id, "My own words.")
    stage.wait_until_idle()
    edited = last(stage)
    assert edited.siblings == 2
    assert edited.text == "My own words."
    assert [part.text for part in sections(stage)] == [
        part.text for part in answer.parts if isinstance(part, SectionPart)
    ]


def test_an_edited_question_reads_the_document_again(stage: Stage, tmp_path: Path) -> None:
    summarise(stage, tmp_path)
    question = stage.state.messages[-2]
    stage.controller.attachments.begin_edit(question.id)
    assert stage.controller.edit(question.id, "Only names.")
    settle(stage)
    assert asked(stage).turns[-1].text.startswith("Only names.")
    assert 'number="1"' in asked(stage).turns[-1].text


def test_a_fork_goes_on_from_the_summary(stage: Stage, tmp_path: Path) -> None:
    answer = summarise(stage, tmp_path)
    stage.controller.copies.fork(answer.id)
    stage.wait_until_idle()
    assert last(stage).conversation != answer.conversation
    assert last(stage).parts == answer.parts
    stage.controller.send("And?")
    settle(stage)
    assert [turn.text for turn in asked(stage).turns][1:] == ["The **whole**.", "And?"]


def test_two_answers_are_made_part_by_part_at_once(stage: Stage, tmp_path: Path) -> None:
    answer = summarise(stage, tmp_path)
    stage.controller.compare(answer.id, GenerationSettings(), GenerationSettings())
    until(lambda: len(stage.engine.unfinished) == 2)
    for _ in range(12):
        for each in list(stage.engine.unfinished):
            stage.engine.write(f"Part {each.request}.", request=each.request)
            stage.engine.finish(request=each.request)
            stage.drain()
        if not stage.state.busy:
            break
        until(lambda: bool(stage.engine.unfinished) or not stage.state.busy)
    shown = last(stage)
    other = stage.state.compared[shown.id]
    for each in (shown, other):
        made = [part for part in each.parts if isinstance(part, SectionPart)]
        assert [part.number for part in made] == [1, 2, 3]
        assert each.text.startswith("Part ")
    texts = [part.text for part in (*shown.parts, *other.parts) if isinstance(part, SectionPart)]
    assert len(set(texts)) == 6  # none is the other answer's


@pytest.mark.parametrize("format", [ExportFormat.MARKDOWN, ExportFormat.HTML, ExportFormat.JSON])
def test_an_export_has_the_parts(stage: Stage, tmp_path: Path, format: ExportFormat) -> None:
    answer = summarise(stage, tmp_path)
    path = tmp_path / f"chat.{format.value}"
    stage.controller.transfer.export_chats([answer.conversation], format, path)
    stage.wait_until_idle()
    until(path.exists)
    text = path.read_text(encoding="utf-8")
    for words in ("Summary ", "whole", "report.txt"):
        assert words in text
    if format is not ExportFormat.JSON:
        assert "part 2 of 3" in text


def test_a_part_is_found(stage: Stage, tmp_path: Path) -> None:
    ask(stage, tmp_path, document(2 * context(stage)))
    write(stage, "A zeppelin was mentioned.")
    while last(stage).state is MessageState.STREAMING:
        write(stage, "Else.")
    stage.wait_until_idle()
    stage.window.sidebar.search.setText("zeppelin")
    stage.wait_until_idle()
    until(lambda: bool(stage.state.query))
    stage.wait_until_idle()
    assert [each.id for each in stage.state.found] == [last(stage).conversation]


def test_the_chat_is_deleted_while_it_runs_and_comes_back(stage: Stage, tmp_path: Path) -> None:
    ask(stage, tmp_path, document(3 * context(stage)))
    write(stage, "First.")
    chat = last(stage).conversation
    stage.controller.deletions.delete([chat])
    stage.engine.finish(FinishReason.CANCELLED)
    stage.wait_until_idle()
    assert not stage.engine.unfinished
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()
    assert [part.text for part in sections(stage)] == ["First."]
    assert last(stage).state is MessageState.STOPPED
    stage.controller.continue_answer(last(stage).id)
    settle(stage)
    assert 'number="2"' in asked(stage).turns[-1].text


def test_another_model_goes_on_with_what_is_done(stage: Stage, tmp_path: Path) -> None:
    ask(stage, tmp_path, document(3 * context(stage)))
    write(stage, "First.")
    second = read_part(asked(stage).turns[-1].text)
    stage.controller.load_model(tmp_path / "other.gguf")
    stage.engine.finish(FinishReason.CANCELLED)
    stage.drain()
    stage.engine.finish_load("Other Model")
    stage.wait_until_idle()
    assert [part.text for part in sections(stage)] == ["First."]
    assert last(stage).state is MessageState.STOPPED
    stage.controller.continue_answer(last(stage).id)
    settle(stage)
    assert read_part(asked(stage).turns[-1].text).split()[0] == second.split()[0]


def test_the_app_is_closed_while_it_runs(make: Callable[[], Stage], tmp_path: Path) -> None:
    stage = make()
    ask(stage, tmp_path, document(3 * context(stage)))
    write(stage, "First.")
    chat = last(stage).conversation
    stage = make()
    stage.controller.open_conversation(chat)
    stage.wait_until_idle()
    assert last(stage).state is MessageState.INTERRUPTED
    assert [part.text for part in sections(stage)] == ["First."]
    stage.controller.continue_answer(last(stage).id)
    settle(stage)
    assert 'number="2"' in asked(stage).turns[-1].text


def test_it_is_stopped_while_parts_are_counted(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    path.write_text(document(3 * context(stage)), encoding="utf-8")
    stage.controller.attachments.attach([path])
    for _ in range(3):
        stage.wait_until_idle()
    stage.controller.attachments.read_by_parts(Reads.SUMMARY)
    assert stage.controller.send("Summarise it.")
    stage.controller.stop()
    stage.wait_until_idle()
    assert last(stage).state is MessageState.STOPPED
    assert last(stage).error is None
    assert not stage.engine.unfinished
    assert not stage.state.busy


def test_what_is_not_complete_is_said_when_it_is_saved(stage: Stage, tmp_path: Path) -> None:
    ask(stage, tmp_path, document(context(stage)), Reads.REWRITE)
    stage.engine.write("```python\nhalf = ")
    stage.engine.finish(FinishReason.LENGTH)
    settle(stage)
    while last(stage).state is MessageState.STREAMING:
        write(stage, "# More")
    place = tmp_path / "new.md"
    stage.controller.rewritten.save(last(stage).id, place)
    stage.wait_until_idle()
    assert stage.state.notices[SAVED_NOTICE].remedy == "1 part is not complete."
    text = place.read_text(encoding="utf-8")
    assert text.startswith("```python\nhalf =\n```\n\n# More")  # the rest is no code


def test_parts_that_are_not_complete_are_read_again_once_all_are(
    stage: Stage, tmp_path: Path
) -> None:
    ask(stage, tmp_path, document(context(stage)), Reads.REWRITE)
    stage.engine.write("Half of")
    stage.engine.finish(FinishReason.LENGTH)
    settle(stage)
    write(stage, "Two.")
    stage.controller.stop()
    stage.engine.finish(FinishReason.CANCELLED)
    stage.drain()
    stage.controller.continue_answer(last(stage).id)
    settle(stage)
    assert 'number="3"' in asked(stage).turns[-1].text  # what was not read comes first
    while last(stage).state is MessageState.STREAMING:
        write(stage, "More.")
    assert "continue" in names(last(stage))
    stage.controller.continue_answer(last(stage).id)
    settle(stage)
    assert 'number="1"' in asked(stage).turns[-1].text
    write(stage, "One.")
    assert last(stage).state is MessageState.COMPLETE
    assert [part.text for part in sections(stage)][:3] == ["One.", "Two.", "More."]
    assert not any(part.cut for part in sections(stage))
    assert "continue" not in names(last(stage))
