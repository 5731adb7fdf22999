"""Retrieval: a question waits for the passages that fit it, which are then a part of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.documents.retrieval import AttachedFiles, Read
from app.domain.documents import Passage, SearchFault
from app.domain.generation_settings import GenerationSettings
from app.domain.message import Message, MessageState
from app.domain.parts import FilePart, Parts, PassagesPart, TextPart, prompt_text
from app.domain.passages import passages_part
from app.store.store import Store
from app.ui.transcript.message.endings import ending
from engine import Chat, ModelLoaded, Role, Sampling
from fake_search import FakeSearch, manual, page
from fakes import MODEL
from stage import Stage, until


@pytest.fixture
def search(stage: Stage) -> FakeSearch:
    made = FakeSearch()
    stage.controller.retrieval.search = made
    stage.ready(MODEL)
    return made


def ask(stage: Stage, text: str, *files: FilePart) -> None:
    parts = (*files, TextPart(text))
    if not stage.controller.send(parts):  # it is still being counted
        stage.wait_until_idle()
        assert stage.controller.send(parts)
    stage.drain()


def answer(stage: Stage, text: str = "Two years [1].", prompt_tokens: int = 40) -> Message:
    stage.engine.write(text)
    stage.engine.finish(prompt_tokens=prompt_tokens)
    stage.wait_until_idle()
    return stage.state.messages[-1]


def found(message: Message) -> tuple[Passage, ...]:
    part = passages_part(message.parts)
    assert part is not None
    return part.passages


def stored(stage: Stage) -> list[Message]:
    made: list[list[Message]] = []
    stage.store_queue.read(lambda store: store.branch(store.conversations()[0].id), made.append)
    until(lambda: bool(made))
    return made[0]


def use(stage: Stage, index: int, key: str) -> None:
    """Use the first control of a message whose key ends so."""
    controls = stage.window.transcript.access.controls.of(index)
    control = next(each for each in controls if each.key.endswith(key))
    assert control.use is not None
    control.use()


def asked(stage: Stage) -> str:
    return stage.engine.last_generate.turns[-1].text


def test_an_answer_waits_for_the_passages_of_its_question(stage: Stage, search: FakeSearch) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    question, waiting = stage.state.messages
    assert stage.state.waiting[waiting.id] == "Looking for passages…"
    assert stage.state.busy
    assert stage.engine.count(Chat) == 0
    assert [each.id for each in stored(stage)] == [question.id, waiting.id]
    assert search.asked[0].question == "How long is the warranty of the pump?"
    assert search.asked[0].keys == ["a1"]

    search.found(page(part, 1, 0.9), page(part, 4, 0.4))
    stage.wait_until_idle()
    kinds = [type(each) for each in stage.state.messages[0].parts]
    assert kinds == [FilePart, PassagesPart, TextPart]
    assert found(stage.state.messages[0]) == (
        Passage(1, "manual.pdf", "The warranty of the pump is two years.", "1", part.unit, "a1",
                "", 0, 38, 0.9),
        Passage(2, "manual.pdf", "The second pump has a warranty of three years.", "4", part.unit,
                "a1", "", part.pages[3].start, len(part.text), 0.4),
    )  # fmt: skip
    assert asked(stage).startswith(
        '<passage number="1" document="manual.pdf" page="1">\nThe warranty of the pump'
    )
    assert asked(stage).endswith("How long is the warranty of the pump?")
    assert "Clean the filter" not in asked(stage)
    answer(stage)
    assert stored(stage)[0].parts == stage.state.messages[0].parts


def test_numbers_go_on_along_the_branch_and_a_known_passage_keeps_its_own(
    stage: Stage, search: FakeSearch
) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    search.found(page(part, 1))
    answer(stage)
    before = asked(stage)
    ask(stage, "Who changes the battery of this pump?")
    search.found(page(part, 2), page(part, 1))
    stage.wait_until_idle()
    assert [(each.number, each.above) for each in found(stage.state.messages[2])] == [
        (2, False), (1, True)
    ]  # fmt: skip
    turns = stage.engine.last_generate.turns
    assert turns[0].text == before  # the cached context stays of use
    assert turns[-1].text.count("two years") == 0
    assert "Of the earlier passages, [1] may help as well." in turns[-1].text


def test_a_follow_up_is_searched_with_the_question_before(stage: Stage, search: FakeSearch) -> None:
    ask(stage, "How long is the warranty of the pump?", manual())
    search.found()
    answer(stage)
    ask(stage, "and the second one?")
    assert search.asked[1].question == "How long is the warranty of the pump?\nand the second one?"
    search.found()
    stage.wait_until_idle()
    part = passages_part(stage.state.messages[2].parts)
    assert part == PassagesPart((), searched=search.asked[1].question)


def test_nothing_found_is_part_of_the_question(stage: Stage, search: FakeSearch) -> None:
    ask(stage, "What is the capital of Peru?", manual())
    search.found(missing=1)
    stage.wait_until_idle()
    assert passages_part(stage.state.messages[0].parts) == PassagesPart(missing=1)
    assert asked(stage).startswith('No passage of "manual.pdf" was found for this question.')
    assert asked(stage).endswith("\n\nWhat is the capital of Peru?")
    assert passages_part(stored(stage)[0].parts) == PassagesPart(missing=1)


def test_stop_while_passages_are_looked_for(stage: Stage, search: FakeSearch) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    stage.controller.stop()
    assert stage.state.messages[-1].state is MessageState.STOPPED
    assert not stage.state.busy
    search.found(page(part, 1))
    stage.wait_until_idle()
    assert stage.state.messages[-1].state is MessageState.STOPPED
    stage.controller.regenerate(stage.state.messages[-1].id)
    stage.wait_until_idle()
    assert len(search.asked) == 1  # they were found meanwhile
    assert "two years" in asked(stage)


def test_a_failed_search_asks_what_to_do(stage: Stage, search: FakeSearch) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    search.fail()
    stage.wait_until_idle()
    last = stage.state.messages[-1]
    assert last.state is MessageState.FAILED
    assert ending(last) == (
        "The documents could not be searched. Try again, or let the model answer without passages."
    )
    assert last.error is not None
    assert last.error.fault == SearchFault("disk I/O error")
    assert stored(stage)[1].error == last.error
    assert stage.engine.count(Chat) == 0

    stage.controller.continue_answer(last.id)  # try again
    search.found(page(part, 1))
    stage.wait_until_idle()
    assert stage.state.messages[-1].id == last.id
    assert "two years" in asked(stage)


class Broken(AttachedFiles):
    """Documents of which no passages can be made."""

    def keys(self, conversation: int, branch: Sequence[Message]) -> Iterable[str]:
        return ("broken",)

    def reader(self, conversation: int, branch: Sequence[Message]) -> Read:
        raise ValueError("no such document")


def test_what_cannot_be_made_of_a_result_does_not_keep_the_answer_waiting(
    stage: Stage, search: FakeSearch, caplog: pytest.LogCaptureFixture
) -> None:
    part, broken = manual(), Broken()
    stage.controller.retrieval.documents.append(broken)
    ask(stage, "How long is the warranty of the pump?", part)
    search.found(page(part, 1))
    stage.wait_until_idle()
    last = stage.state.messages[-1]
    assert last.error is not None
    assert last.error.fault == SearchFault("no such document")
    assert "passages cannot be made" in caplog.text
    caplog.clear()

    stage.controller.retrieval.documents.remove(broken)
    stage.controller.continue_answer(last.id)  # try again
    search.found(page(part, 1))
    stage.wait_until_idle()
    assert "two years" in asked(stage)


def test_a_question_is_answered_without_passages_if_the_user_says_so(
    stage: Stage, search: FakeSearch
) -> None:
    ask(stage, "How long is the warranty of the pump?", manual())
    search.fail()
    stage.wait_until_idle()
    stage.controller.retrieval.answer_without(stage.state.messages[-1].id)
    stage.wait_until_idle()
    assert asked(stage) == "How long is the warranty of the pump?"
    assert passages_part(stage.state.messages[0].parts) == PassagesPart(skipped=True)
    assert len(search.asked) == 1


def test_a_question_whose_search_was_cut_off_is_asked_again(
    stage: Stage, search: FakeSearch, tmp_path: Path
) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    stage.wait_until_idle()
    killed = tmp_path / "killed"
    killed.mkdir()
    for file in stage.folder.glob("conversations.sqlite*"):
        shutil.copy(file, killed)

    again = Stage(killed)
    again.controller.retrieval.search = search
    again.ready(MODEL)
    again.controller.open_conversation(again.state.conversations[0].id)
    again.wait_until_idle()
    question, last = again.state.messages
    assert question.parts == (part, TextPart("How long is the warranty of the pump?"))
    assert last.state is MessageState.INTERRUPTED
    search.open.clear()
    again.controller.continue_answer(last.id)
    search.found(page(part, 1))
    again.wait_until_idle()
    assert "two years" in asked(again)
    again.close()


def test_an_edited_question_is_searched_anew(stage: Stage, search: FakeSearch) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    search.found(page(part, 1))
    answer(stage)
    first = stage.state.messages[0]
    stage.controller.edit(first.id, (part, TextPart("Who changes the battery of the pump?")))
    search.found(page(part, 2))
    stage.wait_until_idle()
    assert [each.text for each in found(stage.state.messages[0])] == [
        "The battery is changed by a mechanic."
    ]
    assert stage.state.messages[0].siblings == 2


def test_a_message_of_the_outbox_is_searched_when_it_is_sent(
    stage: Stage, search: FakeSearch
) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    ask(stage, "Who changes the battery of the pump?")
    assert len(search.asked) == 1
    search.found(page(part, 1))
    answer(stage)
    assert search.asked[1].question == "Who changes the battery of the pump?"


def test_few_passages_where_there_is_little_room(stage: Stage, search: FakeSearch) -> None:
    loaded = stage.state.model.loaded
    assert isinstance(loaded, ModelLoaded)
    stage.state.set_model(replace(stage.state.model, loaded=replace(loaded, context=2048)))
    part = manual(pages=[f"Pump {n}. " + "warranty " * 130 for n in range(20)])
    ask(stage, "How long is the warranty of the pump?", part)
    search.found(*(page(part, n, 1 - n / 100) for n in range(1, 21)))
    stage.wait_until_idle()
    made = passages_part(stage.state.messages[0].parts)
    assert made is not None
    assert [each.number for each in made.passages] == [1, 2, 3]
    assert made.unread == 17

    stage.state.set_model(replace(stage.state.model, loaded=replace(loaded, context=131072)))
    stage.engine.finish()
    stage.wait_until_idle()
    stage.controller.edit(stage.state.messages[0].id, (part, TextPart("How long is the warranty?")))
    search.found(*(page(part, n, 1 - n / 100) for n in range(1, 21)))
    assert len(found(stage.state.messages[0])) == 12


def test_passages_of_old_questions_are_the_first_to_go(stage: Stage, search: FakeSearch) -> None:
    loaded = stage.state.model.loaded
    assert isinstance(loaded, ModelLoaded)
    stage.state.set_model(replace(stage.state.model, loaded=replace(loaded, context=2048)))
    part = manual(pages=[f"Pump {n}. " + "warranty " * 130 for n in range(6)])
    ask(stage, "How long is the warranty of the pump?", part)
    search.found(page(part, 1), page(part, 2))
    answer(stage, prompt_tokens=850)  # three bytes a token
    assert stage.state.left_out == {}
    first = stage.state.messages[0]
    stage.controller.retrieval.pin(2, True)
    ask(stage, "How long is the guarantee of pump five?")
    search.found(page(part, 5), page(part, 6))
    stage.wait_until_idle()
    turns = stage.engine.last_generate.turns
    assert "Pump 0." not in turns[0].text
    assert "Pump 1." not in turns[0].text
    assert "Pump 1." in turns[-1].text  # pinned
    assert [(each.number, each.above) for each in found(stage.state.messages[2])] == [
        (2, True), (3, False), (4, False)
    ]  # fmt: skip
    assert stage.state.left_out == {first.conversation: frozenset([first.id])}
    assert "Pump 0." in prompt_text(stage.state.messages[0].parts)  # on the screen it stays


def test_redo_with_a_struck_passage_is_another_version(stage: Stage, search: FakeSearch) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    search.found(page(part, 1), page(part, 4))
    answer(stage)
    first = stage.state.messages[0]
    part_before = passages_part(first.parts)
    assert part_before is not None
    one, two = part_before.passages
    changed = replace(part_before, passages=(one, replace(two, struck=True)))
    stage.controller.retrieval.answer_with(first.id, changed)
    stage.wait_until_idle()
    now = stage.state.messages[0]
    assert (now.sibling, now.siblings) == (2, 2)
    assert found(now) == changed.passages
    assert "three years" not in asked(stage)
    assert len(search.asked) == 1
    answer(stage)
    stage.controller.navigation.show_sibling(now.id, -1)
    stage.wait_until_idle()
    assert found(stage.state.messages[0]) == (one, two)


def test_more_passages_are_added_to_those_of_a_question(stage: Stage, search: FakeSearch) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    search.found(page(part, 1))
    answer(stage)
    first = stage.state.messages[0]
    stage.controller.retrieval.answer_with_more(first.id)
    search.found(page(part, 1), page(part, 4), page(part, 3))
    stage.wait_until_idle()
    now = stage.state.messages[0]
    assert now.siblings == 2
    assert [(each.number, each.page) for each in found(now)] == [(1, "1"), (2, "4"), (3, "3")]


def test_pins_are_stored(stage: Stage, search: FakeSearch) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    search.found(page(part, 1))
    answer(stage)
    stage.controller.retrieval.pin(1, True)
    stage.wait_until_idle()
    assert [each.pinned for each in found(stored(stage)[0])] == [True]


def test_a_passage_struck_out_is_stored_until_it_is_sent(stage: Stage, search: FakeSearch) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    search.found(page(part, 1), page(part, 4))
    answer(stage)
    first = stage.state.messages[0]
    stage.controller.retrieval.toggle(first.id, 2)
    stage.wait_until_idle()
    assert [(each.struck, each.toggled) for each in found(stored(stage)[0])] == [
        (False, False), (False, True)
    ]  # fmt: skip

    ask(stage, "and the second one?")  # it is read until its question is sent again
    search.found()
    assert "three years" in stage.engine.last_generate.turns[0].text
    answer(stage)
    use(stage, 0, "tool again_with")
    stage.wait_until_idle()
    now = stage.state.messages[0]
    assert [(each.struck, each.toggled) for each in found(now)] == [(False, False), (True, False)]
    assert "three years" not in asked(stage)
    answer(stage)
    stage.controller.navigation.show_sibling(now.id, -1)
    stage.wait_until_idle()
    assert not any(each.struck or each.toggled for each in found(stage.state.messages[0]))


def test_set_parts_keeps_the_message_findable(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.sqlite")
    chat = store.create_conversation("Pumps")
    parts: Parts = (TextPart("How long?"),)
    message = store.add_message(chat.id, None, Role.USER, parts)
    store.set_parts(message.id, (PassagesPart((Passage(1, "a.pdf", "guarantee"),)), *parts))
    assert store.hits("guarantee", [chat.id])[chat.id].message == message.id
    assert passages_part(store.message(message.id).parts) is not None
    store.close()


def test_a_reference_opens_its_document_at_the_passage(stage: Stage, search: FakeSearch) -> None:
    part = manual()
    ask(stage, "Who changes the battery of the pump?", part)
    search.found(page(part, 2))
    answer(stage, "A mechanic [1].")
    viewer = stage.window.attaching.viewer
    assert viewer.card is None
    stage.window.transcript.message_layout.use_link(1, "passage:1")
    assert viewer.card is not None
    assert viewer.popover is not None
    assert not viewer.popover.isHidden()
    cursor = viewer.card.text.textCursor()
    assert viewer.card.text.shown_text[cursor.position() :].startswith("The battery is changed")


def test_the_window_sends_what_the_list_of_passages_asks_for(
    stage: Stage, search: FakeSearch
) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    search.found(page(part, 1), page(part, 4))
    answer(stage)
    view = stage.window.transcript
    view.message_layout.toggle_row(0, 1)
    use(stage, 0, " pin")
    assert [each.pinned for each in found(stage.state.messages[0])] == [True, False]
    strikes = [c for c in view.access.controls.of(0) if c.key.endswith(" strike")]
    assert strikes[1].use is not None
    strikes[1].use()
    use(stage, 0, "tool again_with")
    stage.wait_until_idle()
    assert [(each.pinned, each.struck) for each in found(stage.state.messages[0])] == [
        (True, False), (False, True)
    ]  # fmt: skip
    assert "three years" not in asked(stage)


def test_a_passage_has_what_is_above_it(stage: Stage, search: FakeSearch) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    above = {"headings": "Pumps > years", "table_head": "| Part | Years |\n|---|---|"}
    search.found(replace(page(part, 1), **above))
    stage.wait_until_idle()
    text = "Pumps\n| Part | Years |\n|---|---|\nThe warranty of the pump is two years."
    assert found(stage.state.messages[0])[0].text == text


def test_passages_that_hardly_fit_are_not_read(stage: Stage, search: FakeSearch) -> None:
    part = manual(pages=[f"Page {n} of the manual." for n in range(8)])
    ask(stage, "How long is the warranty of the pump?", part)
    scores = (0.9, 0.8, 0.1, 0.1, 0.1, 0.1)
    search.found(*(page(part, n, score) for n, score in enumerate(scores, 1)))
    made = passages_part(stage.state.messages[0].parts)
    assert made is not None
    assert [each.score for each in made.passages] == [0.9, 0.8, 0.1]
    assert made.unread == 0
    stage.wait_until_idle()


def test_a_passage_struck_out_later_is_not_read_with_its_first_question(
    stage: Stage, search: FakeSearch
) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    search.found(page(part, 1), page(part, 3))
    answer(stage)
    ask(stage, "Who changes the battery of this pump?")
    search.found(page(part, 3), page(part, 2))
    answer(stage, "A mechanic [3].")
    second = stage.state.messages[2]
    made = passages_part(second.parts)
    assert made is not None
    above, own = made.passages
    assert (above.number, above.above) == (2, True)
    changed = replace(made, passages=(replace(above, struck=True), own))
    stage.controller.retrieval.answer_with(second.id, changed)
    stage.wait_until_idle()
    turns = stage.engine.last_generate.turns
    assert "two years" in turns[0].text
    assert not any("filter" in turn.text or "[2]" in turn.text for turn in turns)
    assert "Clean the filter" in prompt_text(stage.state.messages[0].parts)


def test_two_compared_answers_wait_for_one_search(stage: Stage, search: FakeSearch) -> None:
    part = manual()
    ask(stage, "How long is the warranty of the pump?", part)
    stage.controller.stop()
    search.fail()
    stage.wait_until_idle()
    cold, warm = (GenerationSettings(sampling=Sampling(temperature=each)) for each in (0.2, 0.9))
    stage.controller.compare(stage.state.messages[-1].id, cold, warm)
    assert len(search.open) == 1
    search.found(page(part, 1))
    stage.wait_until_idle()
    asked_twice = [each for each in stage.engine.commands if isinstance(each, Chat)]
    assert len(asked_twice) == 2
    assert all("two years" in each.turns[-1].text for each in asked_twice)


def test_the_index_of_the_app_finds_the_passages(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "Who changes the battery?", manual())
    until(lambda: passages_part(stage.state.messages[0].parts) is not None)
    stage.wait_until_idle()
    best = found(stage.state.messages[0])[0]
    assert "The battery is changed by a mechanic." in best.text
    assert 0 < best.score <= 1
    assert best.text in asked(stage)
