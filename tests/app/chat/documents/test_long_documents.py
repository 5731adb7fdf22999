"""Long documents: read part by part, stopped, continued after a restart, and put together."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.chat.documents.part_cuts import part_end
from app.chat.documents.rewritten import NOTICE, SAVED_NOTICE
from app.documents.readers import docx
from app.documents.source import Source
from app.domain.documents import PageStart, PageUnit, Reads
from app.domain.file_words import section_words
from app.domain.message import Message, MessageState
from app.domain.parts import FilePart, SectionPart, TextPart, prompt_text, rewritten_text
from app.ui.file_dialogs import choose_place
from app.ui.transcript.message.message_tools import tools_for
from engine import FinishReason, Priority
from long_stage import WISH, ask, asked, document, last, read_part, sections, settle, stages, write
from stage import Stage, until


@pytest.fixture
def make(qtbot: QtBot, tmp_path: Path) -> Iterator[Callable[[], Stage]]:
    yield from stages(tmp_path / "data")


def test_each_part_is_read_once_and_the_answer_is_made_of_all(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    text = document(3 * context)
    ask(stage, tmp_path, text)
    texts: list[str] = []
    prompts: list[str] = []
    while f'<part document="report.txt" number="{len(texts) + 1}"' in asked(stage).turns[-1].text:
        request = asked(stage)
        assert stage.engine.priorities[request.request] is Priority.BACKGROUND
        assert request.thinking is False
        assert len(request.turns[-1].text.split()) + request.max_tokens < context
        prompts.append(request.turns[-1].text)
        texts.append(read_part(prompts[-1]))
        note = stage.state.waiting[last(stage).id]
        assert note.startswith(f"Reading part {len(texts)} of ")
        write(stage, f"Summary {len(texts)}")
        assert [part.text for part in sections(stage)][-1] == f"Summary {len(texts)}"
    assert len(texts) > 3
    assert "".join("".join(texts).split()) == "".join(text.split())  # all of it, in order
    shared = {each.split("<part", 1)[0] for each in prompts}
    assert len(shared) == 1  # the prefix that is read once
    final = asked(stage).turns[-1].text
    assert all(f">\nSummary {n}\n<" in final for n in range(1, len(texts) + 1))
    write(stage, "The whole.")
    assert last(stage).state is MessageState.COMPLETE
    assert last(stage).text == "The whole."
    stage.controller.send("And now?")
    turns = asked(stage).turns
    assert [turn.text for turn in turns] == [WISH, "The whole.", "And now?"]


def test_a_document_that_fits_is_one_request(make: Callable[[], Stage], tmp_path: Path) -> None:
    stage = make()
    ask(stage, tmp_path, "Short and good.")
    assert "Short and good." in asked(stage).turns[-1].text
    write(stage, "Good.")
    assert last(stage).parts == (TextPart("Good."),)
    assert not stage.engine.unfinished


def test_many_summaries_are_put_together_in_several_levels(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    ask(stage, tmp_path, document(9 * context))
    long = " ".join(["word"] * (context // 5))
    while "<part " in asked(stage).turns[-1].text:
        write(stage, long)
    while last(stage).state is MessageState.STREAMING:
        assert len(asked(stage).turns[-1].text.split()) < context
        write(stage, "Less.")
    levels = [each.level for each in sections(stage)]
    assert set(levels) == {0, 1}
    above = [each for each in sections(stage) if each.level]
    assert [each.start for each in above] == [0, *(each.end for each in above[:-1])]
    assert above[-1].end == levels.count(0)
    assert last(stage).text == "Less."


def test_what_is_done_stays_when_it_is_stopped_and_it_goes_on_after_a_restart(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    text = document(4 * context)
    ask(stage, tmp_path, text)
    read = [read_part(asked(stage).turns[-1].text)]
    write(stage, "First.")
    stage.engine.write("Half of the sec")
    stage.drain()
    stage.controller.stop()
    stage.engine.finish(FinishReason.CANCELLED)
    stage.drain()
    assert last(stage).state is MessageState.STOPPED
    assert [each.text for each in sections(stage)] == ["First."]
    before = last(stage)
    stage.wait_until_idle()
    stage = make()
    stage.controller.open_conversation(before.conversation)
    stage.wait_until_idle()
    assert last(stage).parts == before.parts
    stage.controller.continue_answer(before.id)
    settle(stage)
    while "<part " in asked(stage).turns[-1].text:
        read.append(read_part(asked(stage).turns[-1].text))
        write(stage, "More.")
    assert "".join("".join(read).split()) == "".join(text.split())
    write(stage, "All.")
    assert [each.text for each in sections(stage)] == ["First.", *["More."] * (len(read) - 1)]
    assert last(stage).text == "All."


def test_a_kill_loses_the_part_in_progress_only(make: Callable[[], Stage], tmp_path: Path) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    ask(stage, tmp_path, document(4 * context))
    write(stage, "First.")
    write(stage, "Second.")
    stage.engine.write("Half")
    stage.drain()
    stage.wait_until_idle()
    found: list[Message] = []
    message = last(stage)
    stage.store_queue.read(
        lambda store: [m for m in store.branch(message.conversation) if m.id == message.id],
        found.extend,
    )
    stage.wait_until_idle()
    assert [part.text for part in found[0].parts if isinstance(part, SectionPart)] == [
        "First.", "Second."
    ]  # fmt: skip


def test_a_part_that_fails_can_be_tried_again(make: Callable[[], Stage], tmp_path: Path) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    ask(stage, tmp_path, document(3 * context))
    write(stage, "First.")
    second = asked(stage).turns[-1].text
    stage.engine.fail("broken", "try again")
    stage.drain()
    assert last(stage).state is MessageState.FAILED
    assert [each.text for each in sections(stage)] == ["First."]
    stage.controller.continue_answer(last(stage).id)
    settle(stage)
    assert read_part(asked(stage).turns[-1].text).split()[0] == read_part(second).split()[0]


def test_again_begins_with_the_first_part(make: Callable[[], Stage], tmp_path: Path) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    ask(stage, tmp_path, document(2 * context))
    first = asked(stage).turns[-1].text
    while last(stage).state is MessageState.STREAMING:
        write(stage, "Done.")
    stage.controller.regenerate(last(stage).id)
    settle(stage)
    assert asked(stage).turns[-1].text == first
    assert sections(stage) == []


def test_the_prompt_needs_a_document(make: Callable[[], Stage]) -> None:
    stage = make()
    stage.controller.attachments.read_by_parts(Reads.SUMMARY)
    assert "Attach a document first." in {each.remedy for each in stage.state.notices.values()}


def test_the_prompt_takes_the_documents_of_the_chat(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    ask(stage, tmp_path, "one two three")
    write(stage, "Three numbers.")
    settle(stage)
    stage.controller.attachments.read_by_parts(Reads.SUMMARY)
    attached = stage.states.attachments.of(stage.state.current)
    assert [(each.name, each.part and each.part.reads) for each in attached] == [
        ("report.txt", Reads.SUMMARY)
    ]
    assert "Attach a document first." not in {each.remedy for each in stage.state.notices.values()}


def test_ends_of_parts_are_at_the_best_border() -> None:
    text = "aaaa bbbb\ncccc dddd\n\neeee ffff. gggg"
    paged = FilePart("a", text, unit=PageUnit.PAGE, pages=(PageStart("1", 0), PageStart("2", 10)))
    assert part_end(paged, 0, 12) == 10
    plain = FilePart("a", text)
    assert text[: part_end(plain, 0, 25)] == "aaaa bbbb\ncccc dddd\n\n"
    assert text[: part_end(plain, 0, 13)] == "aaaa bbbb\n"
    assert part_end(plain, 0, 3) == 3
    assert part_end(plain, 0, 99) == len(text)


def test_parts_always_go_forward_and_lose_nothing() -> None:
    chance = random.Random(7)
    for _ in range(300):
        text = "".join(chance.choices("ab .\n\u3002\U0001f600", k=chance.randint(1, 80)))
        starts = sorted({0, *chance.choices(range(len(text)), k=3)})
        pages = tuple(PageStart(str(n), at) for n, at in enumerate(starts))
        file, at = FilePart("a", text, unit=PageUnit.PAGE, pages=pages), 0
        while at < len(text):
            end = part_end(file, at, chance.randint(1, 30))
            assert at < end <= len(text)
            at = end


def test_a_later_prompt_has_neither_the_document_nor_the_sections() -> None:
    file = FilePart("a.txt", "long", reads=Reads.SUMMARY)
    assert prompt_text((file, TextPart(WISH))) == WISH
    assert prompt_text((SectionPart("part"), TextPart("whole"))) == "whole"


def test_an_answer_of_one_part_goes_on_from_its_text(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    ask(stage, tmp_path, "Short and good.")
    write(stage, "It is")
    stage.controller.continue_answer(last(stage).id)
    settle(stage)
    assert "Short and good." in asked(stage).turns[-2].text
    assert asked(stage).turns[-1].text == "It is"
    write(stage, " good.")
    assert last(stage).text == "It is good."


def test_what_was_put_together_before_a_stop_is_not_done_again(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    ask(stage, tmp_path, document(9 * context))
    while "<part " in asked(stage).turns[-1].text:
        write(stage, " ".join(["word"] * (context // 5)))
    write(stage, "Together.")
    stage.controller.stop()
    stage.engine.finish(FinishReason.CANCELLED)
    stage.drain()
    stage.controller.continue_answer(last(stage).id)
    settle(stage)
    while last(stage).state is MessageState.STREAMING:
        write(stage, "More.")
    above = [each for each in sections(stage) if each.level]
    assert [each.text for each in above] == ["Together.", *["More."] * (len(above) - 1)]
    assert [each.start for each in above] == [0, *(each.end for each in above[:-1])]
    assert above[-1].end == len(sections(stage)) - len(above)


def test_another_chat_is_answered_meanwhile(make: Callable[[], Stage], tmp_path: Path) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    ask(stage, tmp_path, document(3 * context))
    long, request = last(stage), asked(stage)
    stage.controller.new_conversation()
    assert stage.controller.send("Hello")
    stage.drain()
    quick = stage.engine.last_generate
    assert stage.engine.priorities[quick.request] is not Priority.BACKGROUND
    stage.engine.write("Hi.", request=quick.request)
    stage.engine.finish(request=quick.request)
    stage.drain()
    assert last(stage).text == "Hi."
    stage.engine.write("First.", request=request.request)
    stage.engine.finish(request=request.request)
    stage.drain()
    until(lambda: bool(stage.engine.unfinished))
    found = stage.state.message(long.id)
    assert found is not None
    assert [part.text for part in found.parts if isinstance(part, SectionPart)] == ["First."]


def test_a_document_is_rewritten_part_by_part_and_saved(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    text = document(2 * context)
    ask(stage, tmp_path, text, Reads.REWRITE)
    read: list[str] = []
    while last(stage).state is MessageState.STREAMING:
        request = asked(stage)
        assert request.max_tokens >= 2 * len(read_part(request.turns[-1].text).split())
        assert len(request.turns[-1].text.split()) + request.max_tokens <= context
        read.append(read_part(request.turns[-1].text))
        write(stage, f"Part *{len(read)}*, rewritten.")
    assert "".join("".join(read).split()) == "".join(text.split())
    assert last(stage).state is MessageState.COMPLETE
    assert last(stage).text == ""  # later prompts have none of it
    names = [tool.name for tool in tools_for(last(stage), busy=False)]
    assert "save" in names
    assert stage.controller.rewritten.name(last(stage).id) == "report 2.md"
    place = tmp_path / "new.md"
    stage.controller.rewritten.save(last(stage).id, place)
    stage.wait_until_idle()
    expected = "\n\n".join(f"Part *{n}*, rewritten." for n in range(1, len(read) + 1))
    assert place.read_text(encoding="utf-8") == f"{expected}\n"
    assert str(place) in stage.state.notices[SAVED_NOTICE].sentence
    assert stage.controller.rewritten.saved == place
    stage.controller.rewritten.save(last(stage).id, tmp_path / "new.docx")
    stage.wait_until_idle()
    assert docx.read(Source(tmp_path / "new.docx")).text.startswith("Part 1, rewritten.")
    stage.controller.rewritten.save(last(stage).id, tmp_path / "no" / "new.md")
    stage.wait_until_idle()
    assert "new.md could not be saved" in stage.state.notices[NOTICE].sentence
    stage.controller.rewritten.save(last(stage).id, tmp_path / "a\0b.md")
    stage.wait_until_idle()
    assert "b.md could not be saved: " in stage.state.notices[NOTICE].sentence
    assert "embedded null" in stage.state.notices[NOTICE].sentence


def test_the_answer_from_a_summary_is_no_document_to_save() -> None:
    parts = (SectionPart("One."), SectionPart("Two.", level=1))
    assert rewritten_text(parts) == "One."
    assert rewritten_text((*parts, TextPart("All."))) == ""


def test_a_part_of_which_nothing_was_made_is_said_and_done_again(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    context = stage.state.model.loaded.context if stage.state.model.loaded else 0
    ask(stage, tmp_path, document(context), Reads.REWRITE)
    write(stage, "One.")
    second = asked(stage).turns[-1].text
    write(stage, "")
    while last(stage).state is MessageState.STREAMING:
        write(stage, "More.")
    before = sections(stage)
    assert section_words(before[1]).endswith("the model wrote nothing")
    stage.controller.continue_answer(last(stage).id)
    settle(stage)
    assert read_part(asked(stage).turns[-1].text) == read_part(second)
    write(stage, "Two.")
    assert last(stage).state is MessageState.COMPLETE
    assert [each.text for each in sections(stage)] == [
        "One.", "Two.", *(each.text for each in before[2:])
    ]  # fmt: skip
    assert rewritten_text(last(stage).parts).startswith("One.\n\nTwo.")


def test_the_kind_of_file_that_is_chosen_ends_its_name(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    chosen: list[Path] = []
    choose_place(stage.window, tmp_path / "report 2.md", chosen.append)
    dialog = stage.window.findChildren(QFileDialog)[-1]
    dialog.filterSelected.emit("Word (*.docx)")
    assert Path(dialog.selectedFiles()[0]).name == "report 2.docx"
    dialog.filesSelected.emit(dialog.selectedFiles())
    assert chosen == [tmp_path / "report 2.docx"]
    dialog.close()
