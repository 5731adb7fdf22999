"""Two answers to one question, written at once and compared, with a fake engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from adapter_stage import PIRATE
from app.domain.generation_settings import GenerationSettings
from app.domain.message import Message, MessageState, StopReason
from app.domain.parts import prompt_text
from app.store.store import Store
from engine import Chat, ContextPolicy, FinishReason, Role, Sampling, Save
from fakes import MODEL, Cancel
from scenes_adapters import add
from stage import Stage, until

COLD, WARM = (
    GenerationSettings(sampling=Sampling(temperature=0.2)),
    GenerationSettings(sampling=Sampling(temperature=1.0)),
)


class Pair:
    """A conversation whose answer is written again twice, to be compared."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.controller.send("Why?")
        stage.engine.write("Because.")
        stage.engine.finish()
        stage.drain()
        self.first = stage.state.messages[-1]

    def compare(
        self, left: GenerationSettings = COLD, right: GenerationSettings = WARM
    ) -> tuple[Chat, Chat]:
        """Compare two new answers; returns their commands."""
        self.stage.controller.compare(self.first.id, left, right)
        self.one, self.two = self.stage.engine.unfinished
        return self.one, self.two

    def write(self, one: str, two: str) -> None:
        """Stream words of both answers in turn."""
        self.stage.engine.interleave({self.one.request: one, self.two.request: two})
        self.stage.drain()

    def finish(self) -> None:
        for each in (self.one, self.two):
            self.stage.engine.finish(request=each.request)
        self.stage.wait_until_idle()

    @property
    def shown(self) -> Message:
        return self.stage.state.messages[-1]

    @property
    def other(self) -> Message:
        return self.stage.state.compared[self.shown.id]

    def stored(self) -> tuple[list[Message], list[Message]]:
        """The branch and the other answers, read from the database file."""
        found: list[tuple[list[Message], list[Message]]] = []
        store_queue, shown = self.stage.store_queue, self.stage.state.current
        assert shown is not None

        def read(store: Store) -> tuple[list[Message], list[Message]]:
            branch = store.branch(shown)
            return branch, store.others(branch)

        store_queue.read(read, found.append)
        until(lambda: bool(found))
        return found[0]


@pytest.fixture
def pair(stage: Stage) -> Pair:
    stage.ready(MODEL)
    return Pair(stage)


def test_both_answers_are_siblings_and_stream_at_once(pair: Pair) -> None:
    one, two = pair.compare()
    assert (one.sampling.temperature, two.sampling.temperature) == (0.2, 1.0)
    assert one.turns == two.turns
    pair.write("It is", "Well, who")
    assert (pair.shown.text, pair.other.text) == ("It is", "Well, who")
    assert (pair.shown.sibling, pair.other.sibling, pair.other.siblings) == (2, 3, 3)
    assert (pair.shown.compared, pair.other.compared) == (pair.other.id, pair.shown.id)
    assert pair.shown.undecided
    assert pair.other.undecided
    pair.finish()
    branch, (other,) = pair.stored()
    assert (branch[-1].text, other.text) == ("It is", "Well, who")
    assert (branch[-1].compared, other.compared) == (other.id, branch[-1].id)
    assert {branch[-1].state, other.state} == {MessageState.COMPLETE}
    assert branch[-1].details is not None
    assert other.details is not None
    assert (branch[-1].details.temperature, other.details.temperature) == (0.2, 1.0)


def test_signals_are_sent_for_both(pair: Pair) -> None:
    texts: list[tuple[int, str]] = []
    changed: set[int] = set()
    pair.stage.state.text_added.connect(lambda message, text: texts.append((message.id, text)))
    pair.stage.state.message_changed.connect(lambda message: changed.add(message.id))
    pair.compare()
    pair.write("It", "Well")
    assert texts == [(pair.shown.id, "It"), (pair.other.id, "Well")]
    pair.finish()
    assert changed == {pair.shown.id, pair.other.id}


@pytest.mark.parametrize("left", [True, False])
def test_kept_answer_ends_the_branch_and_the_chat_goes_on(pair: Pair, left: bool) -> None:
    pair.compare()
    pair.write("It is", "Well")
    pair.finish()
    kept = pair.shown if left else pair.other
    assert not pair.stage.controller.send("And then?")
    assert "comparison" in pair.stage.state.notices
    pair.stage.controller.keep(kept.id)
    assert pair.stage.state.notices == {}
    assert pair.shown.id == kept.id
    assert not pair.shown.undecided
    assert pair.shown.compared
    assert pair.stage.state.compared == {}
    pair.stage.wait_until_idle()
    branch, others = pair.stored()
    assert (branch[-1].text, branch[-1].undecided, others) == (kept.text, False, [])
    assert branch[-1].siblings == 3
    assert pair.stage.controller.send("And then?")
    assert [turn.text for turn in pair.stage.engine.last_generate.turns][-2:] == [
        kept.text,
        "And then?",
    ]


@pytest.mark.parametrize("left", [True, False])
def test_an_answer_that_is_written_is_not_kept(pair: Pair, left: bool) -> None:
    pair.compare()
    pair.write("It is", "Well")
    pair.stage.engine.finish(request=(pair.two if left else pair.one).request)
    pair.stage.drain()
    pair.stage.controller.keep((pair.shown if left else pair.other).id)
    assert pair.shown.undecided
    assert pair.stage.engine.count(Cancel) == 0


@pytest.mark.parametrize("kept_left", [True, False])
def test_a_closed_comparison_is_opened_again(pair: Pair, kept_left: bool) -> None:
    pair.compare()
    pair.write("It is", "Well")
    pair.finish()
    kept, other = (pair.shown, pair.other) if kept_left else (pair.other, pair.shown)
    pair.stage.controller.keep(kept.id)
    pair.stage.controller.reopen_comparison(other.id)
    until(lambda: bool(pair.stage.state.compared))
    assert (pair.shown.id, pair.other.id) == (kept.id, other.id)
    assert pair.shown.undecided
    assert pair.other.text == other.text
    assert len(pair.stored()[1]) == 1
    assert not pair.stage.controller.send("And then?")


def test_stop_ends_both(pair: Pair) -> None:
    pair.compare()
    pair.write("It is", "Well")
    pair.stage.controller.stop()
    assert pair.stage.engine.count(Cancel) == 2
    for each in (pair.one, pair.two):
        pair.stage.engine.finish(FinishReason.CANCELLED, request=each.request)
    pair.stage.wait_until_idle()
    assert {pair.shown.state, pair.other.state} == {MessageState.STOPPED}
    assert (pair.shown.text, pair.other.text) == ("It is", "Well")


@pytest.mark.parametrize("left", [True, False])
def test_one_answer_is_stopped_and_the_other_goes_on(pair: Pair, left: bool) -> None:
    pair.compare()
    pair.write("It", "Well")
    stopped, going = (pair.shown, pair.other) if left else (pair.other, pair.shown)
    one, two = (pair.one, pair.two) if left else (pair.two, pair.one)
    pair.stage.controller.stop_answer(stopped.id)
    assert pair.stage.engine.last(Cancel) == Cancel(one.request)
    assert pair.stage.engine.count(Cancel) == 1
    pair.stage.engine.finish(FinishReason.CANCELLED, request=one.request)
    pair.stage.engine.write(" more", request=two.request)
    pair.stage.engine.finish(request=two.request)
    pair.stage.wait_until_idle()
    found = {message.id: message for message in (pair.shown, pair.other)}
    assert found[stopped.id].state is MessageState.STOPPED
    assert found[going.id].text == going.text + " more"
    assert found[going.id].state is MessageState.COMPLETE


def test_failure_of_one_leaves_the_other_untouched(pair: Pair) -> None:
    pair.compare()
    pair.write("It", "Well")
    pair.stage.engine.fail("It failed.", "Try again.", request=pair.two.request)
    pair.stage.engine.finish(request=pair.one.request)
    pair.stage.wait_until_idle()
    assert (pair.shown.state, pair.other.state) == (MessageState.COMPLETE, MessageState.FAILED)
    branch, (other,) = pair.stored()
    assert other.state is MessageState.FAILED
    assert other.details is not None
    assert other.details.temperature == 1.0
    assert branch[-1].state is MessageState.COMPLETE


@pytest.mark.parametrize("left", [True, False])
def test_deleting_one_ends_the_comparison_and_undo_brings_it_back(pair: Pair, left: bool) -> None:
    pair.compare()
    pair.write("It is", "Well")
    pair.finish()
    gone, stays = (pair.shown, pair.other) if left else (pair.other, pair.shown)
    pair.stage.controller.deletions.delete_message(gone.id)
    pair.stage.wait_until_idle()
    assert pair.shown.id == stays.id
    assert (pair.shown.compared, pair.shown.undecided) == (0, False)
    assert pair.shown.siblings == 2
    assert pair.stage.state.compared == {}
    pair.stage.controller.deletions.undo()
    pair.stage.wait_until_idle()
    assert {pair.shown.id, pair.other.id} == {gone.id, stays.id}
    assert pair.shown.undecided


def test_equal_sides_with_a_seed_are_two_samples(pair: Pair) -> None:
    side = GenerationSettings(sampling=Sampling(seed=7))
    one, two = pair.compare(side, side)
    assert (one.sampling.seed, two.sampling.seed) == (7, 8)


def test_sides_that_differ_keep_the_seed(pair: Pair) -> None:
    used = Sampling(seed=7)
    one, two = pair.compare(
        GenerationSettings(sampling=used), GenerationSettings(sampling=used, thinking=False)
    )
    assert (one.sampling.seed, two.sampling.seed) == (7, 7)
    assert (one.thinking, two.thinking) == (None, False)


def test_a_question_without_an_answer_is_answered_twice(pair: Pair) -> None:
    pair.stage.controller.deletions.delete_message(pair.first.id)
    pair.stage.wait_until_idle()
    asked = pair.shown
    assert asked.role is Role.USER
    pair.stage.controller.compare(asked.id, COLD, WARM)
    assert (pair.shown.parent, pair.other.parent) == (asked.id, asked.id)
    assert (pair.shown.sibling, pair.shown.siblings) == (1, 2)


@pytest.mark.parametrize("way", ["answer again", "edit", "compare again"])
def test_another_answer_leaves_the_comparison_in_its_branch(pair: Pair, way: str) -> None:
    pair.compare()
    pair.write("It is", "Well")
    pair.finish()
    left, right, asked = pair.shown, pair.other, pair.stage.state.messages[0]
    controller = pair.stage.controller
    if way == "answer again":
        controller.regenerate(left.id)
    elif way == "edit":
        controller.edit(asked.id, "Why not?")
    else:
        controller.compare(left.id, WARM, COLD)
    assert left.id not in pair.stage.state.compared
    for each in pair.stage.engine.unfinished:
        pair.stage.engine.write("New", request=each.request)
        pair.stage.engine.finish(request=each.request)
    pair.stage.wait_until_idle()
    if way == "edit":
        controller.navigation.show_sibling(pair.stage.state.messages[0].id, -1)
    else:
        controller.navigation.show_sibling(pair.shown.id, 1 - pair.shown.sibling + 1)
    until(lambda: pair.shown.id == left.id)
    assert (pair.shown.text, pair.other.text) == (left.text, right.text)
    assert pair.shown.undecided


def test_an_open_comparison_cannot_be_continued(pair: Pair) -> None:
    pair.compare()
    pair.write("It", "Well")
    pair.stage.controller.stop()
    for each in (pair.one, pair.two):
        pair.stage.engine.finish(FinishReason.CANCELLED, request=each.request)
    pair.stage.wait_until_idle()
    left = pair.shown.id
    pair.stage.controller.continue_answer(left)
    assert pair.stage.engine.count(Chat) == 3
    pair.stage.controller.keep(left)
    pair.stage.controller.continue_answer(left)
    assert pair.stage.engine.count(Chat) == 4


def test_refused_message_stays_a_draft(pair: Pair) -> None:
    pair.compare()
    pair.write("It", "Well")
    pair.finish()
    composer = pair.stage.window.composer
    composer.set_text("And then?")
    composer.submitted.emit("And then?")
    assert "comparison" in pair.stage.state.notices
    assert pair.stage.state.notices["comparison"].sentence == (
        "Keep one of the two answers to go on."
    )
    assert len(pair.stage.state.messages) == 2
    assert prompt_text(composer.parts()) == "And then?"
    pair.stage.controller.new_conversation()
    assert "comparison" not in pair.stage.state.notices


def test_comparison_while_another_chat_is_shown(pair: Pair) -> None:
    pair.compare()
    chat, left, right = pair.stage.state.current, pair.shown.id, pair.other.id
    assert chat is not None
    pair.stage.controller.new_conversation()
    pair.write("It is", "Well")
    pair.finish()
    pair.stage.controller.open_conversation(chat)
    assert (pair.shown.id, pair.other.id) == (left, right)
    assert (pair.shown.text, pair.other.text) == ("It is", "Well")
    assert {pair.shown.state, pair.other.state} == {MessageState.COMPLETE}


@pytest.mark.parametrize("kept", ["left", "right", "neither"])
def test_context_of_the_kept_answer_is_saved(pair: Pair, kept: str) -> None:
    pair.compare()
    pair.write("It", "Well")
    pair.finish()
    pair.stage.controller.sessions.save()
    left = pair.stage.engine.last(Save)
    assert isinstance(left, Save)
    assert left.answer == pair.one.request
    if kept != "neither":
        pair.stage.controller.keep(pair.shown.id if kept == "left" else pair.other.id)
    pair.stage.controller.sessions.save()
    last = pair.stage.engine.last(Save)
    assert isinstance(last, Save)
    assert last.answer == (pair.two if kept == "right" else pair.one).request
    assert pair.stage.engine.count(Save) == 1 + (kept == "right")


def test_a_full_chat_goes_on_without_its_oldest_messages(pair: Pair) -> None:
    pair.compare()
    for each in (pair.one, pair.two):
        pair.stage.engine.fail("It is full.", "Shorten it.", full=True, request=each.request)
    pair.stage.drain()
    pair.stage.controller.act_on_notice("full")
    (asked,) = pair.stage.engine.unfinished
    assert asked.policy is ContextPolicy.DROP_OLDEST
    assert pair.shown.siblings == 4
    assert pair.stage.state.compared == {}


def test_comparison_waits_for_a_model(stage: Stage) -> None:
    stage.controller.send("Why?")
    stage.controller.stop()
    asked = stage.state.messages[0].id
    stage.controller.deletions.delete_message(stage.state.messages[1].id)
    stage.wait_until_idle()
    stage.controller.compare(asked, COLD, WARM)
    assert len(stage.state.queued) == 2
    assert len(stage.state.waiting) == 2
    stage.ready(MODEL)
    assert len(stage.engine.unfinished) == 2


def test_branch_switch_keeps_the_comparison(pair: Pair) -> None:
    pair.compare()
    pair.write("It is", "Well")
    left, right = pair.shown.id, pair.other.id
    pair.stage.controller.navigation.show_sibling(left, -1)
    until(lambda: pair.shown.id == pair.first.id)
    assert pair.stage.state.compared == {}
    pair.write(" so", " now")  # while another branch is shown
    pair.stage.controller.navigation.show_sibling(pair.first.id, 2)
    until(lambda: pair.shown.id == right)
    assert (pair.shown.text, pair.other.text) == ("Well now", "It is so")
    assert pair.other.id == left
    pair.finish()
    pair.stage.controller.navigation.show_sibling(right, -1)
    until(lambda: pair.shown.id == left)
    assert pair.other.id == right


def test_comparison_is_written_again_after_a_repair(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    stage = pair.stage
    pair.compare()
    pair.write("It is", "Well")
    pair.finish()

    def damage(store: Store) -> None:
        store.close()
        stage.store_queue._store = None
        stage.store_queue.path.write_bytes(b"no database " * 4000)

    stage.store_queue.write(damage)
    stage.wait_until_idle()
    stage.controller.conversations.rename(stage.state.conversations[0].id, "Sky")
    until(lambda: "store" in stage.state.notices)
    stage.controller.act_on_notice("store")
    until(lambda: "repair" in stage.state.notices)
    stage.wait_until_idle()
    branch, (other,) = pair.stored()
    assert (branch[-1].text, other.text) == ("It is", "Well")
    assert (branch[-1].compared, other.compared) == (other.id, branch[-1].id)
    stage.controller.keep(pair.other.id)
    stage.wait_until_idle()
    assert pair.stored()[0][-1].text == "Well"
    caplog.clear()


def test_crash_leaves_an_interrupted_comparison(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.start()
    stage.ready(MODEL)
    pair = Pair(stage)
    pair.compare()
    pair.write("It is", "Well")
    stage.controller.save()
    stage.wait_until_idle()
    copy = tmp_path / "crashed.sqlite"
    copy.write_bytes((stage.store_queue.path).read_bytes())
    for end in ("-wal",):
        log = stage.store_queue.path.with_name(stage.store_queue.path.name + end)
        copy.with_name(copy.name + end).write_bytes(log.read_bytes())
    stage.close()
    store = Store.open(copy)
    (listed,) = store.conversations()
    branch = store.branch(listed.id)
    (other,) = store.others(branch)
    assert (branch[-1].text, other.text) == ("It is", "Well")
    assert {branch[-1].state, other.state} == {MessageState.INTERRUPTED}
    assert branch[-1].undecided
    assert branch[-1].details is not None
    assert branch[-1].details.temperature == 0.2
    store.close()


# --- the answer that is kept ----------------------------------------------------------------------


COLD, WARM = (
    GenerationSettings(sampling=Sampling(temperature=0.2)),
    GenerationSettings(sampling=Sampling(temperature=1.0)),
)


def compare(
    stage: Stage, one: str, other: str, second_side: GenerationSettings = WARM
) -> tuple[int, int]:
    """Compare two answers and write this much of both, if anything; returns their requests."""
    stage.controller.send("Why?")
    stage.engine.write("Because.")
    stage.engine.finish()
    stage.drain()
    stage.controller.compare(stage.state.messages[-1].id, COLD, second_side)
    first, second = (command.request for command in stage.engine.unfinished)
    texts = {first: one, second: other}
    stage.engine.interleave({request: text for request, text in texts.items() if text})
    stage.drain()
    return first, second


def test_changed_adapters_are_pending_while_a_kept_answer_is_continued(stage: Stage) -> None:
    stage.ready(MODEL)
    add(stage, stage.controller.adapters, PIRATE)
    requests = compare(stage, "It is", "Well")
    stage.controller.adapters.set_on(0, False)
    assert not stage.states.adapters.pending  # these two have adapters of their own
    stage.controller.adapters.set_on(0, True)
    stage.controller.stop()
    for request in requests:
        stage.engine.finish(FinishReason.CANCELLED, request=request)
    stage.wait_until_idle()
    kept = stage.state.messages[-1].id
    stage.controller.keep(kept)
    stage.controller.continue_answer(kept)
    (continued,) = stage.engine.unfinished
    stage.engine.write(" so", request=continued.request)
    stage.drain()
    assert not stage.states.adapters.pending
    stage.controller.adapters.set_on(0, False)
    assert stage.states.adapters.pending


def stored(stage: Stage, message_id: int) -> Message:
    """A message, read from the database file."""
    found: list[Message] = []
    stage.store_queue.read(lambda store: store.message(message_id), found.append)
    until(lambda: bool(found))
    return found[0]


@pytest.mark.parametrize("reason", [FinishReason.END, FinishReason.CANCELLED])
@pytest.mark.parametrize("left", [True, False])
def test_an_answer_that_has_ended_is_kept_while_the_other_is_written(
    stage: Stage, left: bool, reason: FinishReason
) -> None:
    stage.ready(MODEL)
    requests = compare(stage, "It is", "Well")
    shown = stage.state.messages[-1]
    pair = (shown, stage.state.compared[shown.id])
    kept, other = pair if left else pair[::-1]
    ended, going = requests if left else requests[::-1]
    stage.engine.finish(reason, request=ended)
    stage.drain()
    stage.controller.keep(kept.id)
    assert stage.state.messages[-1].id == kept.id
    assert not stage.state.messages[-1].undecided
    assert not stage.state.compared
    assert stage.engine.last(Cancel) == Cancel(going)
    stage.engine.write(", who", request=going)  # before the engine has seen Cancel
    stage.engine.finish(FinishReason.CANCELLED, request=going)
    stage.wait_until_idle()
    assert not stage.state.busy
    assert [message.id for message in stage.state.messages][1:] == [kept.id]
    lost = stored(stage, other.id)
    assert lost.text == other.text + ", who"
    assert (lost.state, lost.stop) == (MessageState.STOPPED, StopReason.USER)
    assert not lost.undecided
    assert lost.details is not None
    assert lost.details.temperature == (1.0 if left else 0.2)
    assert stored(stage, kept.id).text == kept.text
    stage.controller.sessions.save()
    saved = stage.engine.last(Save)
    assert isinstance(saved, Save)
    assert saved.answer == ended
    assert stage.controller.send("And then?")
    turns = stage.engine.last_generate.turns
    assert [turn.text for turn in turns][-2:] == [kept.text, "And then?"]
    stage.engine.finish()
    stage.drain()
    stage.controller.navigation.show_sibling(kept.id, 1 if left else -1)
    until(lambda: stage.state.messages[-1].id == other.id)
    assert stage.state.messages[-1].text == lost.text


def test_an_answer_that_has_not_begun_ends_at_once_when_the_other_is_kept(stage: Stage) -> None:
    stage.ready(MODEL)
    first, second = compare(stage, "", "Well")
    stage.engine.finish(request=second)
    stage.drain()
    shown = stage.state.messages[-1]
    kept = stage.state.compared[shown.id]
    stage.controller.keep(kept.id)
    assert stage.engine.last(Cancel) == Cancel(first)
    assert not stage.state.busy
    stage.wait_until_idle()
    assert stored(stage, shown.id).state is MessageState.STOPPED
    stage.controller.sessions.save()
    saved = stage.engine.last(Save)
    assert isinstance(saved, Save)
    assert saved.answer == second


def test_nothing_is_kept_while_another_branch_is_answered(stage: Stage) -> None:
    stage.ready(MODEL)
    requests = compare(stage, "It is", "Well")
    for request in requests:
        stage.engine.finish(request=request)
    stage.wait_until_idle()
    shown = stage.state.messages[-1]
    stage.controller.regenerate(shown.id)
    again = stage.state.messages[-1]
    stage.controller.navigation.show_sibling(again.id, -1)
    until(lambda: stage.state.messages[-1].id != again.id)
    pair = stage.state.messages[-1]
    assert pair.undecided
    stage.controller.keep(pair.id)
    assert stage.state.messages[-1].undecided
    assert stage.engine.count(Cancel) == 0


def test_adapters_are_not_pending_for_an_answer_that_is_stopped(stage: Stage) -> None:
    stage.ready(MODEL)
    add(stage, stage.controller.adapters, PIRATE)
    first, second = compare(stage, "It is", "Well", GenerationSettings(adapters=()))
    stage.engine.finish(request=first)
    stage.drain()
    stage.controller.keep(stage.state.messages[-1].id)
    assert stage.state.generations[second].stopping
    assert not stage.states.adapters.pending
