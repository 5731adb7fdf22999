"""Each chat has its model: from its first answer, by choice, loaded when it is sent to, or missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.answering.chat_models import NOTICE
from app.chat.answering.model_switch import NOTICE as SWITCH_NOTICE
from app.domain.chat_settings import ChatSettings
from app.domain.generation_settings import GenerationSettings
from app.domain.message import MessageState, StopReason
from app.domain.model_ref import Local, Remote
from app.domain.parts import ErrorPart, prompt_text
from app.settings.table import Settings
from app.state.chat import ModelFile, ModelPhase
from engine import Chat, FinishReason, Load, Restore, SetAdapters
from fakes import Cancel, kind_of
from stage import Stage

NAMES = {"one.gguf": "One 1B", "two.gguf": "Two 2B", "three.gguf": "Three 3B"}


class Models(Stage):
    """The window, three model files, and an engine that loads and answers when told."""

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        super().__init__(folder, settings=settings)
        self.files = [folder / name for name in NAMES]
        for file in self.files:
            file.write_bytes(b"GGUF")
        self.one, self.two, self.three = map(Local, self.files)

    def loaded(self) -> None:
        """The load that was asked for succeeds."""
        self.engine.finish_load(NAMES[self.engine.load.path.name])
        self.drain()

    def chat(self, words: str = "Why?") -> int:
        """A new chat with an answer by the loaded model."""
        self.controller.new_conversation()
        assert self.controller.send(words)
        self.end()
        assert self.state.current is not None
        return self.state.current

    def end(self, text: str = "Because.", request: int = 0) -> None:
        self.engine.write(text, request=request)
        self.engine.finish(request=request)
        self.wait_until_idle()

    def send_in(self, chat: int, words: str = "And?") -> bool:
        self.open(chat)
        return self.controller.send(words)

    def open(self, chat: int) -> None:
        self.controller.open_conversation(chat)
        self.wait_until_idle()

    @property
    def loads(self) -> list[Path]:
        return [each.path for each in self.engine.commands if isinstance(each, Load)]

    def model_of(self, chat: int | None) -> object:
        return self.state.settings(chat).model

    def written_by(self, chat: int) -> list[str]:
        """The models of the answers of a chat."""
        return [m.model for m in self.state.branches[chat] if m.model]


@pytest.fixture
def models(qtbot: QtBot, tmp_path: Path) -> Iterator[Models]:
    made = Models(tmp_path)
    made.start(made.files[0])
    made.loaded()
    yield made
    made.close()


@pytest.fixture
def both(models: Models) -> tuple[Models, int, int]:
    """A chat of each of two models; the second one is shown, and its model is loaded."""
    first = models.chat()
    models.controller.new_conversation()
    models.controller.load_model(models.files[1])
    models.loaded()
    second = models.chat()
    return models, first, second


def test_a_chat_has_the_model_of_its_first_answer(models: Models) -> None:
    models.controller.send("Why?")
    chat = models.state.current
    assert models.model_of(chat) is None
    models.engine.write("Because")
    models.drain()
    assert models.model_of(chat) == models.one
    assert models.model_of(None) is None
    assert models.engine.count(Load) == 1


def test_opening_a_chat_loads_nothing_and_says_what_sending_will(
    both: tuple[Models, int, int],
) -> None:
    models, first, second = both
    assert models.state.chat_model is None
    models.open(first)
    assert models.loads == models.files[:2]
    chat = models.state.chat_model
    assert chat is not None
    assert (chat.model, chat.name, chat.loaded, chat.missing) == (
        models.one, "one", "Two 2B", "",
    )  # fmt: skip
    assert chat.load_seconds == 0.8  # as it took before
    models.open(second)
    assert models.state.chat_model is None


def test_sending_loads_the_model_of_the_chat_first(both: tuple[Models, int, int]) -> None:
    models, first, _ = both
    assert models.send_in(first)
    assert models.state.messages[-2].text == "And?"
    assert models.loads[-1] == models.files[0]
    assert models.engine.count(Chat) == 2
    assert list(models.state.waiting.values()) == ["Waiting for the model to load…"]
    models.loaded()
    models.end()
    assert models.written_by(first) == ["One 1B", "One 1B"]
    assert len(models.loads) == 3


def test_one_click_uses_the_loaded_model(both: tuple[Models, int, int]) -> None:
    models, first, _ = both
    models.open(first)
    models.window.chat.model_line.use_button.click()
    assert models.model_of(first) == models.two
    assert models.state.chat_model is None
    models.controller.send("And?")
    models.end()
    assert len(models.loads) == 2
    assert models.written_by(first) == ["One 1B", "Two 2B"]


def test_loaded_model_can_be_used_while_an_answer_waits(both: tuple[Models, int, int]) -> None:
    models, first, second = both
    assert models.send_in(second)
    assert models.send_in(first)
    assert models.engine.count(Chat) == 3
    models.controller.model_use.use_loaded()
    assert models.engine.count(Chat) == 4
    assert len(models.loads) == 2


def test_two_chats_of_two_models_are_answered_one_after_the_other(
    both: tuple[Models, int, int],
) -> None:
    models, first, second = both
    assert models.send_in(second)
    running = models.engine.last_generate.request
    assert models.send_in(first)
    assert list(models.state.waiting.values()) == ["Waits: loads one after other answers"]
    assert len(models.loads) == 2
    models.end(request=running)
    assert models.loads[2:] == [models.files[0]]
    models.loaded()
    models.end()
    assert models.written_by(first) == ["One 1B", "One 1B"]
    assert models.written_by(second) == ["Two 2B", "Two 2B"]
    assert not models.state.waiting


def test_answers_are_grouped_by_model(both: tuple[Models, int, int]) -> None:
    models, first, second = both
    third = models.chat("A third")  # of the second model
    fourth = models.chat("A fourth")
    models.open(fourth)
    models.controller.chat_models.choose(fourth, models.one)
    models.send_in(second)
    running = models.engine.last_generate.request
    models.send_in(first)
    models.send_in(third)  # of the loaded model: it does not wait
    also = models.engine.last_generate.request
    models.send_in(fourth)
    assert len(models.engine.unfinished) == 2
    models.end(request=running)
    models.end(request=also)
    assert models.loads[2:] == [models.files[0]]
    models.loaded()
    assert len(models.engine.unfinished) == 2  # both of the first model
    for command in list(models.engine.unfinished):
        models.end(request=command.request)
    assert len(models.loads) == 3


def test_an_answer_of_another_model_is_not_overtaken_for_ever(
    both: tuple[Models, int, int],
) -> None:
    models, first, second = both
    models.send_in(second)
    models.send_in(first)
    for number in range(6):
        models.controller.new_conversation()
        models.controller.send(f"Question {number}")
    assert len(models.engine.unfinished) == 5  # that of the second chat, and four after it
    for command in list(models.engine.unfinished):
        models.end(request=command.request)
    assert models.loads[2:] == [models.files[0]]


def test_failed_load_fails_its_answers_and_the_next_goes_on(
    both: tuple[Models, int, int],
) -> None:
    models, first, second = both
    models.send_in(first)
    models.send_in(second)
    assert models.loads[2:] == [models.files[0]]
    models.engine.fail_load("The file is damaged.", "Download it again.")
    models.drain()
    failed = models.state.branches[first][-1]
    assert failed.state is MessageState.FAILED
    error = failed.parts[-1]
    assert isinstance(error, ErrorPart)
    assert error.message == "The file is damaged."
    assert models.loads[3:] == [models.files[1]]
    models.loaded()
    models.end()
    assert models.written_by(second) == ["Two 2B", "Two 2B"]


def test_failed_load_that_leaves_the_model_before_it(both: tuple[Models, int, int]) -> None:
    models, first, second = both
    models.send_in(first)
    models.send_in(second)
    models.engine.fail_load("There is not enough memory.", "Close a program.", model_gone=False)
    models.drain()
    assert models.state.branches[first][-1].state is MessageState.FAILED
    models.end()
    assert len(models.loads) == 3
    assert models.written_by(second) == ["Two 2B", "Two 2B"]
    models.open(first)
    assert models.state.chat_model is not None  # sending tries again


def test_cancelling_the_load_stops_the_answers_that_wait_for_it(
    both: tuple[Models, int, int],
) -> None:
    models, first, second = both
    models.send_in(first)
    models.send_in(second)
    models.open(first)
    models.window.chat.status_line.cancel_requested.emit()
    assert isinstance(models.engine.commands[-1], Cancel)
    models.engine.cancel_load()
    models.drain()
    stopped = models.state.branches[first][-1]
    assert (stopped.state, stopped.stop) == (MessageState.STOPPED, StopReason.USER)
    assert models.loads[3:] == [models.files[1]]
    models.loaded()
    models.end()
    assert models.state.branches[second][-1].state is MessageState.COMPLETE


def test_quitting_loads_no_model_for_a_waiting_answer(both: tuple[Models, int, int]) -> None:
    models, first, second = both
    models.send_in(second)
    running = models.engine.last_generate.request
    models.send_in(first)
    models.controller.shut_down()
    models.engine.finish(FinishReason.CANCELLED, request=running)
    models.drain()
    assert len(models.loads) == 2


def test_restart_keeps_the_model_of_each_chat(qtbot: QtBot, tmp_path: Path) -> None:
    made = Models(tmp_path)
    made.start(made.files[0])
    made.loaded()
    first = made.chat()
    made.controller.new_conversation()
    made.controller.load_model(made.files[1])
    made.loaded()
    second = made.chat()
    made.close()
    again = Models(tmp_path)
    again.start(again.files[1])
    again.loaded()
    assert (again.model_of(first), again.model_of(second)) == (again.one, again.two)
    again.open(first)
    assert again.loads == again.files[1:2]
    assert again.send_in(first)
    assert again.loads[1:] == again.files[:1]
    again.close()


def test_choosing_a_model_loads_it_and_is_kept_by_the_shown_chat(models: Models) -> None:
    chat = models.chat()
    models.controller.load_model(models.files[1])
    assert models.model_of(chat) == models.two
    assert models.loads[1:] == [models.files[1]]
    models.loaded()
    assert models.state.chat_model is None


def test_giving_up_the_waiting_choice_gives_the_chat_its_model_back(models: Models) -> None:
    chat = models.chat()
    models.send_in(chat)
    models.controller.load_model(models.files[1])
    assert models.model_of(chat) == models.two
    models.controller.close_notice(SWITCH_NOTICE)
    assert models.model_of(chat) == models.one
    models.end()
    assert len(models.loads) == 1


def test_giving_up_another_change_keeps_the_choice_that_was_made(models: Models) -> None:
    chat = models.chat()
    models.controller.load_model(models.files[1])
    models.loaded()
    models.send_in(chat)
    models.controller.change_settings(context=1024)
    models.controller.model_use.reload()  # waits for the answer
    models.controller.close_notice(SWITCH_NOTICE)
    assert models.model_of(chat) == models.two


def test_missing_model_is_said_and_refused_until_another_is_chosen(
    both: tuple[Models, int, int],
) -> None:
    models, first, _ = both
    models.files[0].unlink()
    models.open(first)
    chat = models.state.chat_model
    assert chat is not None
    assert chat.missing
    line = models.window.chat.model_line
    assert line.isVisible()
    assert "is not on this computer any more" in line.words.text()
    assert not models.controller.send("And?")
    assert models.state.notices[NOTICE].sentence == (
        "one, the model of this chat, is not on this computer any more."
    )
    last = models.state.messages[-1]
    models.controller.regenerate(last.id)
    models.controller.edit(models.state.messages[0].id, "Other")
    assert models.state.messages[-1] == last
    assert len(models.loads) == 2
    line.use_button.click()
    assert NOTICE not in models.state.notices
    assert models.controller.send("And?")
    models.end()
    assert models.written_by(first)[-1] == "Two 2B"


def test_file_that_comes_back_can_be_used(both: tuple[Models, int, int]) -> None:
    models, first, second = both
    models.files[0].unlink()
    models.open(first)
    models.files[0].write_bytes(b"GGUF")
    models.open(second)
    models.open(first)
    chat = models.state.chat_model
    assert chat is not None
    assert not chat.missing


def test_model_of_a_server_is_refused_in_a_sentence(models: Models) -> None:
    chat = models.chat()
    models.controller.chat_models.choose(chat, Remote("office", "big"))
    assert not models.state.capabilities.adapters
    assert not models.controller.send("And?")
    assert models.state.notices[NOTICE].sentence == (
        "big, the model of this chat, is on a server that is not set up here."
    )
    models.controller.regenerate_with(models.state.messages[-1].id, Remote("office", "big"))
    models.drain()
    assert models.state.messages[-1].state is MessageState.FAILED
    assert models.state.chat_model is not None
    assert models.state.chat_model.missing
    models.controller.model_use.use_loaded()
    assert models.state.capabilities.adapters


def test_another_model_can_answer_again_without_becoming_the_chats(
    both: tuple[Models, int, int],
) -> None:
    models, _, second = both
    models.controller.regenerate_with(models.state.messages[-1].id, models.one)
    assert models.loads[2:] == [models.files[0]]
    models.loaded()
    models.end("By the first.")
    answer = models.state.messages[-1]
    assert (answer.text, answer.model, answer.siblings) == ("By the first.", "One 1B", 2)
    assert answer.details is not None
    assert answer.details.model == "One 1B"
    assert models.model_of(second) == models.two
    assert models.state.chat_model is not None
    models.controller.send("And?")
    assert models.loads[3:] == [models.files[1]]


def test_two_models_are_compared_in_turn(both: tuple[Models, int, int]) -> None:
    models, _, second = both
    left, right = GenerationSettings(), GenerationSettings(model=models.one)
    models.controller.compare(models.state.messages[-1].id, left, right)
    shown = models.state.messages[-1]
    other = models.state.compared[shown.id]
    assert (shown.model, other.model) == ("Two 2B", "one")
    assert models.state.waiting[other.id] == "Waits: loads one after the first answer"
    assert len(models.engine.unfinished) == 1
    models.end("Left.")
    assert models.loads[2:] == [models.files[0]]
    models.loaded()
    models.end("Right.")
    shown = models.state.messages[-1]
    other = models.state.compared[shown.id]
    assert (shown.text, shown.model, other.text, other.model) == (
        "Left.", "Two 2B", "Right.", "One 1B",
    )  # fmt: skip
    assert shown.details is not None
    assert other.details is not None
    assert (shown.details.model, other.details.model) == ("Two 2B", "One 1B")
    headers = [words for _, words in models.window.transcript.message_layout.headers()]
    assert headers == ["Two 2B", "One 1B"]
    models.controller.keep(other.id)
    assert models.model_of(second) == models.two
    assert len(models.loads) == 3
    models.controller.send("And?")
    assert models.loads[3:] == [models.files[1]]


def test_compare_with_a_model_that_cannot_be_loaded(both: tuple[Models, int, int]) -> None:
    models, _, second = both
    left, right = GenerationSettings(), GenerationSettings(model=models.one)
    models.controller.compare(models.state.messages[-1].id, left, right)
    models.end("Left.")
    models.engine.fail_load("The file is damaged.", "Download it again.")
    models.wait_until_idle()
    shown = models.state.messages[-1]
    other = models.state.compared[shown.id]
    assert (shown.state, other.state) == (MessageState.COMPLETE, MessageState.FAILED)
    models.controller.keep(shown.id)
    assert models.model_of(second) == models.two
    assert models.state.model.phase is ModelPhase.FAILED
    assert models.controller.send("And?")
    models.loaded()
    models.end()
    assert models.written_by(second)[-1] == "Two 2B"


def test_adapters_and_context_of_another_model_are_not_sent_to_the_engine(
    both: tuple[Models, int, int], tmp_path: Path
) -> None:
    models, first, second = both
    models.send_in(first)
    models.loaded()
    models.end()
    models.controller.adapters.add(tmp_path / "pirate.gguf")
    models.engine.set_adapters()
    models.wait_until_idle()
    models.send_in(second)
    models.loaded()
    models.end()
    before = len(models.engine.commands)
    models.open(first)
    models.controller.sessions.restore()  # as some time after it was opened
    models.wait_until_idle()
    sent = {kind_of(each) for each in models.engine.commands[before:]}
    assert not sent & {SetAdapters, Restore}
    assert models.states.adapters.stack[0].on
    models.send_in(first)
    models.loaded()
    models.engine.set_adapters()
    models.drain()
    assert models.engine.last_generate.adapters is not None
    assert len(models.engine.last_generate.adapters) == 1


def test_one_model_loads_once(models: Models) -> None:
    for number in range(3):
        models.chat(f"Question {number}")
    chats = [each.id for each in models.state.conversations]
    for chat in chats:
        assert models.send_in(chat)
        models.end()
        models.controller.regenerate(models.state.messages[-1].id)
        models.end()
    assert models.engine.count(Load) == 1


def test_picker_of_an_answer_chooses_for_that_answer_alone(both: tuple[Models, int, int]) -> None:
    models, _, second = both
    models.window.choose_model_for(models.state.messages[-1].id)
    models.window.picker.chosen.emit(Local(models.files[0]))
    assert models.loads[2:] == [models.files[0]]
    models.loaded()
    models.end("Again.")
    assert models.written_by(second) == ["One 1B"]
    assert models.model_of(second) == models.two
    models.window.open_picker()
    models.window.picker.chosen.emit(Local(models.files[2]))
    assert models.model_of(second) == models.three


def test_card_compares_the_models_that_are_there(both: tuple[Models, int, int]) -> None:
    models, _, second = both
    models.state.set_installed(
        [
            ModelFile(models.files[0], "One 1B", 1_000_000),
            ModelFile(models.files[2], "Three 3B", 3_000_000, bad=True),
        ]
    )
    models.window.transcript.compare_requested.emit(models.state.messages[-1].id)
    card = models.window.cards.comparison
    assert card is not None
    buttons = [column.model for column in card.columns]
    assert [button.text() for button in buttons if button is not None] == ["Two 2B", "Two 2B"]
    assert buttons[1] is not None
    menu = buttons[1].menu_of_choices()
    assert [action.text() for action in menu.actions()] == ["Two 2B", "One 1B"]
    menu.actions()[1].trigger()
    card.compare_button.click()
    shown = models.state.messages[-1]
    headers = [words for _, words in models.window.transcript.message_layout.headers()]
    assert headers == ["Two 2B", "One 1B"]
    models.controller.stop_answer(models.state.compared[shown.id].id)  # while it waits
    models.end("Left.")
    assert len(models.loads) == 2
    assert models.state.compared[shown.id].state is MessageState.STOPPED
    assert models.model_of(second) == models.two


def test_replaced_file_of_a_model_answers_its_chats(both: tuple[Models, int, int]) -> None:
    models, first, second = both
    models.files[0].unlink()
    models.files[0].write_bytes(b"GGUF of another model")
    models.open(first)
    assert models.state.chat_model is not None
    assert not models.state.chat_model.missing
    assert models.send_in(first)
    models.engine.finish_load("Replaced 7B")
    models.drain()
    models.end()
    assert models.written_by(first) == ["One 1B", "Replaced 7B"]
    assert models.written_by(second) == ["Two 2B"]


def test_file_removed_while_its_message_waits_fails_the_answer_and_keeps_the_text(
    both: tuple[Models, int, int],
) -> None:
    models, first, second = both
    models.open(first)
    models.files[0].unlink()  # after it was looked for
    assert models.send_in(first, "Kept words")
    models.engine.fail_load("The file is not there.", "Choose another.", model_gone=False)
    models.wait_until_idle()
    question, answer = models.state.branches[first][-2:]
    assert (question.text, answer.state) == ("Kept words", MessageState.FAILED)
    models.send_in(second)
    models.end()
    assert models.written_by(second) == ["Two 2B", "Two 2B"]


def test_renamed_file_is_another_model_until_it_is_chosen(both: tuple[Models, int, int]) -> None:
    models, first, _ = both
    moved = models.files[0].with_name("moved.gguf")
    models.files[0].rename(moved)
    models.open(first)
    assert models.state.chat_model is not None
    assert models.state.chat_model.missing
    assert not models.controller.send("And?")
    models.controller.load_model(moved)
    assert NOTICE not in models.state.notices
    models.engine.finish_load("One 1B")
    models.drain()
    assert models.controller.send("And?")
    models.end()
    assert models.model_of(first) == Local(moved)
    assert models.written_by(first) == ["One 1B", "One 1B"]


def test_settings_and_instructions_stay_with_any_model(both: tuple[Models, int, int]) -> None:
    models, first, second = both
    settings = ChatSettings(
        model=models.one, instructions="Be brief.", stop=("#",), sampling={"temperature": 0.1}
    )
    models.controller.chat_settings.change(first, settings)
    models.open(first)
    models.controller.model_use.use_loaded()
    assert models.state.settings(first) == replace(settings, model=models.two)
    for chosen in (models.files[2], models.files[0]):
        models.controller.load_model(chosen)
        models.loaded()
        assert models.controller.send("And?")
        models.drain()
        command = models.engine.last_generate
        assert command.turns[0].text == "Be brief."
        assert command.sampling.temperature == 0.1
        models.end()
    assert models.state.settings(first) == settings
    assert models.state.settings(second) == ChatSettings(model=models.two)


def test_earlier_answers_keep_the_name_of_their_model(both: tuple[Models, int, int]) -> None:
    models, _, second = both
    models.controller.load_model(models.files[0])
    models.loaded()
    models.controller.regenerate(models.state.messages[-1].id)
    models.end("Again.")
    assert models.written_by(second) == ["One 1B"]
    turns = models.engine.last_generate.turns
    assert [turn.text for turn in turns] == ["Why?"]  # without the answer of the other model
    models.controller.navigation.show_sibling(models.state.messages[-1].id, -1)
    models.wait_until_idle()
    assert models.written_by(second) == ["Two 2B"]


def test_messages_that_wait_during_a_load_are_sent_in_order_and_once(
    both: tuple[Models, int, int],
) -> None:
    models, first, _ = both
    models.send_in(first, "First")
    models.controller.send("Second")
    models.controller.send("Third")
    models.open(first)
    models.loaded()
    for number in range(3):
        models.end(f"Answer {number}")
    texts = [message.text for message in models.state.branches[first]][2:]
    assert texts == ["First", "Answer 0", "Second", "Answer 1", "Third", "Answer 2"]
    assert len(models.loads) == 3


def test_quitting_during_a_load_keeps_what_was_sent(qtbot: QtBot, tmp_path: Path) -> None:
    made = Models(tmp_path)
    made.start(made.files[0])
    made.controller.send("Kept words")
    made.controller.send("Kept as well")
    made.wait_until_idle()
    made.close()
    again = Models(tmp_path)
    try:
        again.start()
        (chat,) = again.state.conversations
        again.open(chat.id)
        assert [m.text for m in again.state.branches[chat.id]][:1] == ["Kept words"]
        waiting = again.state.outbox[chat.id]
        assert [prompt_text(each.parts) for each in waiting] == ["Kept as well"]
        assert not again.loads
    finally:
        again.close()


def test_duplicate_and_fork_keep_the_model_of_the_chat(both: tuple[Models, int, int]) -> None:
    models, first, _ = both
    models.open(first)
    models.controller.copies.duplicate([first])
    models.wait_until_idle()
    assert models.model_of(models.state.current) == models.one
    models.controller.copies.fork(models.state.messages[-1].id)
    models.wait_until_idle()
    assert models.model_of(models.state.current) == models.one
    assert models.loads == models.files[:2]
    assert models.controller.send("And?")
    assert models.loads[2:] == models.files[:1]
    models.loaded()
    models.end()
    assert models.state.messages[-1].model == "One 1B"


def test_two_models_of_one_name_are_told_apart(models: Models, tmp_path: Path) -> None:
    other = tmp_path / "other" / "one.gguf"
    other.parent.mkdir()
    other.write_bytes(b"GGUF")
    chat = models.chat()
    models.controller.load_model(other)
    models.engine.finish_load("One 1B")
    models.drain()
    assert models.model_of(chat) == Local(other)
    models.controller.chat_models.choose(chat, models.one)
    models.state.set_installed(
        [ModelFile(path, "One 1B", 1_000_000) for path in (models.files[0], other)]
    )
    shown = models.state.chat_model
    assert shown is not None
    names = [name for _, name in models.controller.chat_models.offered(None)]
    assert len(set(names)) == 2
    assert shown.name != shown.loaded
    assert models.controller.send("And?")
    assert models.loads[-1] == models.files[0]
