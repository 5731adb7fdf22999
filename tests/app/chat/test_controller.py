"""Controller: intents become commands, events become state, and the store follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chat.answering.continuation import NOTICE as ENDED_NOTICE
from app.chat.chat_list.conversations import title_of
from app.domain.message import AnswerAgain, Message, MessageState, StopReason
from app.domain.model_ref import Local
from app.domain.parts import ErrorPart, FilePart, Parts, TextPart, ThoughtPart, clipboard_text
from app.settings.table import Settings, load
from app.state.chat import ModelFile, ModelPhase
from app.store.store import Store
from app.ui.transcript.message.answer_card import answer_rows
from app.ui.transcript.message.endings import ending, short_ending
from app.ui.transcript.message.message_tools import tools_for
from engine import (
    Chat,
    DraftKind,
    Fault,
    FaultKind,
    FinishReason,
    Load,
    Role,
    Turn,
)
from fakes import MODEL, Cancel
from stage import Stage, until

USER, ASSISTANT = Role.USER, Role.ASSISTANT


def ask(stage: Stage, text: str = "Why is the sky blue?") -> None:
    assert stage.controller.send(text)
    stage.drain()


def answer(stage: Stage, text: str = "Because of the air.") -> Message:
    stage.engine.write(text)
    stage.engine.finish()
    stage.wait_until_idle()
    return stage.state.messages[-1]


def stored_branch(stage: Stage) -> list[Message]:
    """The shown branch of the newest conversation, read from the database file."""
    found: list[list[Message]] = []
    stage.store_queue.read(lambda store: store.branch(store.conversations()[0].id), found.append)
    until(lambda: bool(found))
    return found[0]


def stored(stage: Stage) -> list[tuple[Role, str, MessageState]]:
    return [(message.role, message.text, message.state) for message in stored_branch(stage)]


# --- sending ------------------------------------------------------------------------------------


def test_message_is_sent_and_its_answer_is_shown(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    assert stage.engine.last_generate.turns == (Turn(USER, "Why is the sky blue?"),)
    last = answer(stage)
    assert last.text == "Because of the air."
    assert last.state is MessageState.COMPLETE
    assert last.generated_tokens == 24
    assert last.model == "Small Model 135M"
    assert stored(stage) == [
        (USER, "Why is the sky blue?", MessageState.COMPLETE),
        (ASSISTANT, "Because of the air.", MessageState.COMPLETE),
    ]


def test_the_whole_branch_is_sent(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "One")
    answer(stage, "Two")
    ask(stage, "Three")
    assert [turn.text for turn in stage.engine.last_generate.turns] == ["One", "Two", "Three"]


def test_sampling_and_instructions_come_from_the_settings(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.change_settings(
        temperature=0.0, max_tokens=7, system_prompt="Answer in rhyme.", top_k=3, thinking="off"
    )
    ask(stage)
    asked = stage.engine.last_generate
    assert (asked.sampling.temperature, asked.sampling.top_k, asked.max_tokens) == (0.0, 3, 7)
    assert asked.thinking is False
    assert asked.turns[0] == Turn(Role.SYSTEM, "Answer in rhyme.")


def test_drafts_are_asked_for_unless_they_are_switched_off(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    assert stage.engine.last_generate.drafts is DraftKind.LOOKUP
    answer(stage, "Fine")
    stage.controller.change_settings(faster_answers="off")
    ask(stage, "And now?")
    assert stage.engine.last_generate.drafts is DraftKind.NONE


def test_blank_text_is_not_sent(stage: Stage) -> None:
    stage.ready(MODEL)
    assert not stage.controller.send("  \n ")
    assert stage.state.conversations == ()


def test_a_title_is_the_first_words(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "Explain\n  in a few words " + "why " * 40)
    title = stage.state.conversations[0].title
    assert title.startswith("Explain in a few words why why")
    assert len(title) <= 61
    assert title.endswith("why…")


@pytest.mark.parametrize(
    ("parts", "title"),
    [
        ((TextPart("日本 " + "語" * 80),), "日本 " + "語" * 57 + "…"),
        ((TextPart("word " * 5 + "x" * 90),), ("word " * 5 + "x" * 90)[:60] + "…"),
        ((TextPart("w" * 59 + "e\u0301\u0301" + "w" * 9),), "w" * 59 + "…"),
        ((TextPart("a" * 58 + "\U0001f469\u200d\U0001f680" + "a" * 9),), "a" * 58 + "…"),
        ((TextPart("a" * 60),), "a" * 60),
        ((FilePart("", "Dear Sir,\n" * 40), TextPart("What does he want?")), "What does he want?"),
        ((FilePart("notes.txt", "a"), TextPart(" \n")), "notes.txt"),
        ((FilePart("", "\n  Dear Sir,\nno"),), "Dear Sir, no"),
        ((TextPart("```\nx = 1\n```\nWhy?"),), "Why?"),
        ((TextPart("def f():\n    return 1\n\nWhy?"),), "Why?"),
        ((TextPart("def f():\n    return 1"),), "def f(): return 1"),
        ((TextPart("\u202eWhy?"),), "Why?"),
    ],
)
def test_a_title_is_of_the_question_and_is_cut_late(parts: Parts, title: str) -> None:
    assert title_of(parts) == title


def test_a_message_waits_for_the_model(stage: Stage) -> None:
    stage.start(MODEL)
    ask(stage)
    assert stage.engine.count(Chat) == 0
    waiting = stage.state.messages[-1]
    assert stage.state.waiting[waiting.id] == "Waiting for the model to load…"
    assert stage.state.busy
    stage.engine.finish_load()
    stage.drain()
    assert stage.engine.count(Chat) == 1
    assert stage.state.waiting == {}
    assert answer(stage).text == "Because of the air."


def test_without_a_model_a_message_waits_for_one_to_be_chosen(stage: Stage) -> None:
    stage.start()
    ask(stage)
    assert list(stage.state.waiting.values()) == ["Choose a model to get an answer"]
    stage.controller.load_model(MODEL)
    assert list(stage.state.waiting.values()) == ["Waiting for the model to load…"]
    stage.engine.finish_load()
    stage.drain()
    assert stage.engine.count(Chat) == 1


@pytest.mark.parametrize("remembered", [True, False])
def test_after_unload_a_question_loads_the_last_or_only_model(
    stage: Stage, tmp_path: Path, remembered: bool
) -> None:
    path, other = tmp_path / "m-Q4_0.gguf", tmp_path / "n-Q4_0.gguf"
    path.touch()
    stage.ready(path)
    stage.state.set_installed(
        [
            ModelFile(path, "m", 1, "Q4_0"),
            ModelFile(other, "n", 1, "Q4_0", bad=not remembered),
        ]
    )
    if not remembered:
        stage.controller.change_settings(last_model="")
    stage.controller.unload_model()
    stage.engine.finish_unload()
    stage.drain()
    assert stage.state.model.phase is ModelPhase.NONE
    ask(stage)
    assert stage.engine.load.path == path
    assert list(stage.state.waiting.values()) == ["Waiting for the model to load…"]
    stage.engine.finish_load()
    stage.drain()
    assert stage.engine.count(Chat) == 1


def test_of_several_models_of_which_none_was_used_one_must_be_chosen(stage: Stage) -> None:
    stage.start()
    stage.state.set_installed(
        [ModelFile(Path(f"/models/{name}.gguf"), name, 1, "Q4_0") for name in "mn"]
    )
    ask(stage)
    assert stage.state.model.phase is ModelPhase.NONE
    assert list(stage.state.waiting.values()) == ["Choose a model to get an answer"]


def test_waiting_message_fails_when_the_load_fails(stage: Stage) -> None:
    stage.start(MODEL)
    ask(stage)
    stage.engine.fail_load("The file is cut short.", "Download it again.")
    stage.wait_until_idle()
    last = stage.state.messages[-1]
    assert last.state is MessageState.FAILED
    assert ending(last) == "The file is cut short. Download it again."
    assert not stage.state.busy


def test_a_waiting_message_can_be_stopped(stage: Stage) -> None:
    stage.start(MODEL)
    ask(stage)
    stage.controller.stop()
    stage.wait_until_idle()
    assert stage.state.messages[-1].state is MessageState.STOPPED
    stage.engine.finish_load()
    stage.drain()
    assert stage.engine.count(Chat) == 0


# --- stop, continue, regenerate, edit -------------------------------------------------------------


def test_stop_keeps_the_partial_answer(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    stage.engine.write("Because of")
    stage.drain()
    stage.controller.stop()
    stage.controller.stop()
    assert stage.engine.count(Cancel) == 1
    stage.engine.finish(FinishReason.CANCELLED)
    stage.wait_until_idle()
    last = stage.state.messages[-1]
    assert (last.text, last.state) == ("Because of", MessageState.STOPPED)
    assert stored(stage)[-1] == (ASSISTANT, "Because of", MessageState.STOPPED)


def test_continue_appends_to_the_same_message(stage: Stage) -> None:
    test_stop_keeps_the_partial_answer(stage)
    stopped = stage.state.messages[-1]
    stage.controller.continue_answer(stopped.id)
    stage.drain()
    assert stage.engine.last_generate.turns[-1] == Turn(ASSISTANT, "Because of")
    last = answer(stage, " the air.")
    assert last.id == stopped.id
    assert last.text == "Because of the air."
    assert stored(stage)[-1] == (ASSISTANT, "Because of the air.", MessageState.COMPLETE)


def test_a_complete_answer_goes_on_if_it_is_the_last(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    first = answer(stage, "One.")
    stage.controller.continue_answer(first.id)
    stage.drain()
    assert stage.engine.last_generate.turns[-1] == Turn(ASSISTANT, "One.")
    assert answer(stage, " Two.").text == "One. Two."
    assert ENDED_NOTICE not in stage.state.notices
    stage.controller.continue_answer(first.id)
    stage.drain()
    assert answer(stage, "").text == "One. Two."
    assert ENDED_NOTICE in stage.state.notices  # else nothing seems to happen
    ask(stage)
    answer(stage, "Three.")
    stage.controller.continue_answer(first.id)
    assert stage.engine.count(Chat) == 4


def test_an_edited_answer_is_a_new_version_from_which_the_chat_goes_on(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    first = answer(stage, "<think>\nHm.\n</think>\n\nOne way.")
    stage.controller.edit(first.id, "  ")
    stage.controller.edit(first.id, "One way.")
    assert stage.state.messages[-1] == first  # nothing was changed
    stage.controller.edit(first.id, "Another way.")
    edited = stage.state.messages[-1]
    assert (edited.sibling, edited.siblings, edited.state) == (2, 2, MessageState.COMPLETE)
    assert edited.details is not None
    assert edited.details.edited
    assert edited.model == first.model
    assert clipboard_text(edited.parts) == "Another way."
    assert any(isinstance(part, ThoughtPart) for part in edited.parts)
    assert stage.engine.count(Chat) == 1  # no answer is written for it
    stage.controller.continue_answer(edited.id)
    stage.drain()
    assert stage.engine.last_generate.turns[-1].text.endswith("Another way.")
    last = answer(stage, " Go on.")
    assert last.details is not None
    assert last.details.edited
    kept = stored_branch(stage)[-1]
    assert clipboard_text(kept.parts) == "Another way. Go on."
    assert kept.details is not None
    assert kept.details.edited
    stage.controller.navigation.show_sibling(edited.id, -1)
    stage.wait_until_idle()
    assert clipboard_text(stage.state.messages[-1].parts) == "One way."


@pytest.mark.parametrize(
    ("how", "asked"),
    [
        (AnswerAgain.SHORTER, "Answer in at most 20 words."),
        (AnswerAgain.LONGER, "Answer in more detail, in about 80 words."),
    ],
)
def test_another_length_is_asked_for_once(stage: Stage, how: AnswerAgain, asked: str) -> None:
    stage.ready(MODEL)
    ask(stage, "Why?")
    first = answer(stage, "word " * 40)
    stage.controller.regenerate(first.id, how)
    stage.drain()
    assert stage.engine.last_generate.turns[-1] == Turn(USER, f"Why?\n\n{asked}")
    again = answer(stage, "Because")
    assert ("Asked for", asked) in answer_rows(again)
    assert stored_branch(stage)[-1].details == again.details
    assert stage.state.messages[0].text == "Why?"  # the question is as it was
    stage.controller.continue_answer(again.id)
    stage.drain()
    assert [turn.text for turn in stage.engine.last_generate.turns] == [
        f"Why?\n\n{asked}",
        "Because",
    ]
    again = answer(stage, ".")
    assert ("Asked for", asked) in answer_rows(again)
    stage.controller.regenerate(again.id)
    stage.drain()
    assert stage.engine.last_generate.turns[-1] == Turn(USER, "Why?")


def test_another_model_loads_and_answers_again(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    first = answer(stage, "One way.")
    window = stage.window
    window.transcript.regenerate_requested.emit(first.id, AnswerAgain.OTHER_MODEL)
    assert window.picker_card.isVisible()
    window.picker_card.close_card()  # given up
    window.open_picker()
    window.picker.chosen.emit(Local(MODEL))
    assert stage.state.messages[-1].id == first.id
    window.transcript.regenerate_requested.emit(first.id, AnswerAgain.OTHER_MODEL)
    other = MODEL.with_name("Other.gguf")
    window.picker.chosen.emit(Local(other))
    stage.drain()
    stage.engine.finish_load("Other")
    stage.drain()
    again = answer(stage, "Another way.")
    assert again.details is not None
    assert (again.sibling, again.details.model) == (2, "Other")


def test_regenerate_keeps_the_old_answer_as_a_sibling(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    first = answer(stage, "One way.")
    stage.controller.regenerate(first.id)
    stage.drain()
    assert [turn.role for turn in stage.engine.last_generate.turns] == [USER]
    second = answer(stage, "Another way.")
    assert (second.sibling, second.siblings) == (2, 2)
    assert len(stage.state.messages) == 2
    stage.controller.navigation.show_sibling(second.id, -1)
    stage.wait_until_idle()
    shown = stage.state.messages[-1]
    assert (shown.text, shown.sibling, shown.siblings) == ("One way.", 1, 2)
    assert shown.id == first.id
    stage.controller.navigation.show_sibling(shown.id, 1)
    stage.wait_until_idle()
    assert stage.state.messages[-1].text == "Another way."


def test_editing_begins_a_branch_and_keeps_the_old_one(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "Why is the sky blue?")
    answer(stage, "Air.")
    ask(stage, "Why is grass green?")
    answer(stage, "Chlorophyll.")
    own = stage.state.messages[2]
    stage.controller.edit(own.id, "Why is blood red?")
    stage.drain()
    assert [turn.text for turn in stage.engine.last_generate.turns] == [
        "Why is the sky blue?",
        "Air.",
        "Why is blood red?",
    ]
    answer(stage, "Iron.")
    edited = stage.state.messages[2]
    assert (edited.sibling, edited.siblings) == (2, 2)
    stage.controller.navigation.show_sibling(edited.id, -1)
    stage.wait_until_idle()
    assert [message.text for message in stage.state.messages][2:] == [
        "Why is grass green?",
        "Chlorophyll.",
    ]


def test_the_first_message_can_be_edited(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "One")
    answer(stage, "Two")
    stage.controller.edit(stage.state.messages[0].id, "Uno")
    answer(stage, "Due")
    assert [message.text for message in stage.state.messages] == ["Uno", "Due"]
    assert len(stage.state.conversations) == 1


def test_only_user_messages_are_edited_and_only_answers_regenerated(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    last = answer(stage)
    stage.controller.edit(last.id, "Something else")
    stage.controller.regenerate(stage.state.messages[0].id)
    assert stage.engine.count(Chat) == 1


def test_failed_answer_has_a_reason_and_can_be_regenerated(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    stage.engine.write("Because")
    stage.engine.fail("The memory of this machine ran out.", "Close other programs.")
    stage.wait_until_idle()
    failed = stage.state.messages[-1]
    assert failed.state is MessageState.FAILED
    assert failed.text == "Because"
    assert ending(failed) == "The memory of this machine ran out. Close other programs."
    stage.controller.regenerate(failed.id)
    assert answer(stage).state is MessageState.COMPLETE


def test_consecutive_user_messages_are_merged_into_one_turn(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "One")
    stage.engine.fail("It failed.", "")
    stage.wait_until_idle()
    ask(stage, "Two")
    assert stage.engine.last_generate.turns == (Turn(USER, "One\n\nTwo"),)


@pytest.mark.parametrize("reason", FinishReason)
def test_every_end_is_reported_and_stored_and_the_answer_kept(
    stage: Stage, reason: FinishReason
) -> None:
    stage.ready(MODEL)
    ask(stage)
    stage.engine.write("Because")
    stage.engine.finish(reason)
    stage.wait_until_idle()
    last = stage.state.messages[-1]
    assert last.text == "Because"
    is_complete = reason in (FinishReason.END, FinishReason.STOP, FinishReason.TOOL_CALLS)
    assert last.state is (MessageState.COMPLETE if is_complete else MessageState.STOPPED)
    assert last.stop == {
        FinishReason.LENGTH: StopReason.LENGTH,
        FinishReason.CONTEXT: StopReason.CONTEXT,
        FinishReason.REPETITION: StopReason.REPETITION,
        FinishReason.CANCELLED: StopReason.USER,
    }.get(reason, "")
    offered = [tool.name for tool in tools_for(last, busy=False)]
    lasting = [tool.name for tool in tools_for(last, busy=False) if tool.lasting]
    assert "continue" in offered
    assert ("continue" in lasting) is not is_complete
    assert bool(ending(last) or short_ending(last)) is not is_complete
    kept = stored_branch(stage)[-1]
    assert (kept.state, kept.stop) == (last.state, last.stop)


# --- several conversations ----------------------------------------------------------------------


def test_answer_continues_in_its_conversation_when_another_is_shown(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "First")
    first = stage.state.current
    stage.engine.write("In the")
    stage.drain()
    stage.controller.new_conversation()
    assert stage.state.busy_conversations == {first}
    assert not stage.state.busy
    (asked,) = stage.engine.unfinished
    ask(stage, "Second")
    second = stage.state.current
    waiting = stage.state.messages[-1].id
    until(lambda: waiting in stage.state.waiting)
    assert stage.state.waiting[waiting] == "Queued: another answer is being written"
    stage.engine.write(" background.", request=asked.request)
    stage.engine.finish(request=asked.request)
    stage.wait_until_idle()
    assert stage.state.waiting == {}
    assert stage.engine.last_generate.turns[-1].text == "Second"
    assert answer(stage, "Here.").conversation == second
    assert first is not None
    stage.controller.open_conversation(first)
    stage.wait_until_idle()
    assert stage.state.messages[-1].text == "In the background."


def test_stop_applies_to_the_shown_conversation(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "First")
    stage.controller.new_conversation()
    stage.controller.stop()
    assert stage.engine.count(Cancel) == 0


def test_a_stored_conversation_opens_with_its_branch(stage: Stage) -> None:
    store = Store.open(stage.store_queue.path)
    made = store.create_conversation("From before")
    store.add_message(made.id, None, USER, "Hello")
    store.close()
    stage.ready(MODEL)
    assert [conversation.title for conversation in stage.state.conversations] == ["From before"]
    stage.controller.open_conversation(made.id)
    stage.wait_until_idle()
    assert [message.text for message in stage.state.messages] == ["Hello"]


def test_renaming_reaches_the_store(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    assert stage.state.current is not None
    stage.controller.conversations.rename(stage.state.current, "  A   better name ")
    stage.controller.conversations.rename(stage.state.current, "   ")
    stage.wait_until_idle()
    assert stage.state.conversations[0].title == "A better name"
    titles: list[str] = []
    stage.store_queue.read(lambda store: store.conversations()[0].title, titles.append)
    until(lambda: bool(titles))
    assert titles == ["A better name"]


def test_search_finds_words_of_messages(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage, "About colours")
    answer(stage, "Rayleigh scattering.")
    stage.controller.new_conversation()
    ask(stage, "About cooking")
    answer(stage, "Boil water.")
    stage.controller.conversations.search("rayleigh")
    stage.wait_until_idle()
    assert [c.title for c in stage.state.shown_conversations] == ["About colours"]
    stage.controller.conversations.search("")
    assert len(stage.state.shown_conversations) == 2


def test_drafts_are_kept_for_each_conversation(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    answer(stage)
    current = stage.state.current
    stage.controller.drafts.keep(current, (TextPart("half a thought"),))
    stage.controller.drafts.keep(None, (TextPart("another"),))
    stage.wait_until_idle()
    drafts: list[str] = []
    stage.store_queue.read(lambda store: store.draft(None).text, drafts.append)
    stage.store_queue.read(
        lambda store: store.draft(store.conversations()[0].id).text, drafts.append
    )
    until(lambda: len(drafts) == 2)
    assert drafts == ["another", "half a thought"]


# --- the model ----------------------------------------------------------------------------------


def test_progress_then_ready(stage: Stage) -> None:
    stage.start(MODEL)
    stage.engine.progress(0.5)
    stage.drain()
    assert stage.state.model.phase is ModelPhase.LOADING
    assert stage.state.model.done_bytes == 49_000_000
    stage.engine.finish_load()
    stage.wait_until_idle()
    assert stage.state.model.phase is ModelPhase.READY
    assert load(stage.folder / "settings.json").last_model == str(MODEL)


def test_a_cancelled_load_leaves_no_error(stage: Stage) -> None:
    stage.start(MODEL)
    stage.controller.models.cancel()
    stage.engine.cancel_load()
    stage.drain()
    assert stage.state.model.phase is ModelPhase.NONE
    assert stage.state.notices == {}


def test_failed_load_keeps_the_loaded_model(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.load_model(Path("/models/broken.gguf"))
    stage.engine.fail_load("It is not a model.", "Choose a GGUF file.", model_gone=False)
    stage.drain()
    model = stage.state.model
    assert (model.phase, model.path, model.error) == (
        ModelPhase.READY,
        MODEL,
        "It is not a model.",
    )
    assert stage.state.notices["model"].remedy == "Choose a GGUF file."


def test_failed_load_is_a_sentence_in_the_window_and_a_code_in_the_store(stage: Stage) -> None:
    stage.start(Path("/models/half.gguf"))
    stage.controller.send("Hello")
    fault = Fault(FaultKind.INCOMPLETE)
    stage.engine.fail_load("The file ends at byte 49.", "It is cut short.", fault=fault)
    stage.drain()
    notice = stage.state.notices["model"]
    assert (notice.sentence, notice.remedy) == (
        "half.gguf is incomplete.",
        "Download it again.",
    )
    assert notice.detail == "The file ends at byte 49. It is cut short."
    answer = stage.state.messages[-1]
    assert answer.state is MessageState.FAILED
    advice = "It is cut short."
    assert answer.error == ErrorPart(fault, "half.gguf", "The file ends at byte 49.", advice)
    assert [m.error for m in stored_branch(stage)] == [None, answer.error]
    assert ending(answer) == "half.gguf is incomplete. Download it again."


def test_newer_load_cancels_the_one_before(stage: Stage) -> None:
    stage.start(MODEL)
    first = stage.engine.load
    stage.controller.load_model(Path("/models/other.gguf"))
    assert stage.engine.last(Cancel) == Cancel(first.request)
    stage.engine.progress(0.1)
    stage.drain()
    assert stage.state.model.path == Path("/models/other.gguf")
    stage.engine.finish_load("Other")
    stage.drain()
    assert stage.state.model.name == "Other"


def test_missing_last_model_is_not_loaded(tmp_path: Path, stage: Stage) -> None:
    stage.controller.settings = Settings(last_model=str(tmp_path / "gone.gguf"))
    stage.start()
    assert stage.engine.count(Load) == 0
    assert stage.state.model.phase is ModelPhase.NONE


# --- errors -------------------------------------------------------------------------------------


def test_unexpected_exception_shows_one_notice(stage: Stage) -> None:
    stage.start()
    stage.controller.report_soon(KeyError("secret words of the user"))
    stage.drain()
    notice = stage.state.notices["fault"]
    assert notice.detail == "KeyError"
    assert "secret" not in notice.sentence + notice.remedy
    stage.controller.close_notice("fault")
    assert stage.state.notices == {}


def test_speed_and_context_are_known_after_an_answer(stage: Stage) -> None:
    stage.ready(MODEL)
    ask(stage)
    answer(stage)
    assert round(stage.state.speed, 1) == 36.9  # its first token comes with the prompt
    assert stage.state.context_used == 64
