"""Any order of messages, stops, deletions, branches and engine events over three conversations.

Every answer has one final state, which it keeps, and its stored text is that of its events.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtWidgets import QApplication

from app.chat.controller import Controller
from app.domain.message import Message, MessageState
from app.engines.local import local
from app.settings.table import Settings
from app.state.states import States
from app.store.store import Store
from app.store.writer import StoreQueue
from engine import Cancel, Event, FinishReason, Generate, Role
from fakes import MODEL, FakeEngine
from stage import flush, until, wait_for_workers

WORDS = ("Because", " of", " the", " air", "\n\n", " and", " light")


class Chats:
    """Three conversations over a fake engine, and what each answer should be in the end."""

    def __init__(self, folder: Path) -> None:
        self.states = States()
        self.state = self.states.chat
        self.store_queue = StoreQueue(folder / "conversations.sqlite")
        self.engines: list[FakeEngine] = []
        self.controller = Controller(
            self.states, self.store_queue, Settings(), folder / "settings.json", local(self._engine)
        )
        self.chats: list[int | None] = [None, None, None]
        self.texts: dict[int, str] = {}  # message of an answer: the text of its events
        self.messages: dict[int, int] = {}  # request: its message
        self.owners: dict[int, int] = {}  # message: its conversation
        self.ends: dict[int, MessageState] = {}
        self.state.generations_changed.connect(self._note_requests)
        self.controller.start(MODEL)
        self.engine.finish_load()
        self.idle()

    def _engine(self, deliver: Callable[[Event], None]) -> FakeEngine:
        self.engines.append(FakeEngine(deliver))
        return self.engines[-1]

    @property
    def engine(self) -> FakeEngine:
        return self.engines[0]

    def _note_requests(self) -> None:
        for request, generation in self.state.generations.items():
            self.messages[request] = generation.message
            self.owners[generation.message] = generation.conversation
            self.texts.setdefault(generation.message, "")

    def idle(self) -> None:
        self.controller.drain()
        done: list[int] = []
        self.store_queue.flush(done.append)
        until(lambda: bool(done))
        flush()

    # --- the user -------------------------------------------------------------------------------

    def send(self, place: int, _: int) -> None:
        if self.chats[place] is None:
            self.controller.new_conversation()
        else:
            self.show(place, 0)
        if self.controller.send(f"Question {len(self.texts)}"):
            self.chats[place] = self.state.current

    def show(self, place: int, _: int) -> None:
        if (number := self.chats[place]) is not None:
            self.controller.open_conversation(number)
            self.idle()

    def stop(self, place: int, _: int) -> None:
        if (number := self.chats[place]) is not None:
            self.controller.stop_in(number)
            assert not any(
                each.conversation == number and not each.stopping
                for each in self.state.generations.values()
            )

    def delete(self, place: int, _: int) -> None:
        if (number := self.chats[place]) is not None:
            self.controller.deletions.delete([number])
            self.chats[place] = None

    def regenerate(self, place: int, _: int) -> None:
        self.show(place, 0)
        if message := self._last(Role.ASSISTANT):
            self.controller.regenerate(message.id)

    def edit(self, place: int, _: int) -> None:
        self.show(place, 0)
        if message := self._last(Role.USER):
            self.controller.edit(message.id, "Another question")

    def sibling(self, place: int, number: int) -> None:
        self.show(place, 0)
        if message := self._last(Role.ASSISTANT if number % 2 else Role.USER):
            self.controller.navigation.show_sibling(message.id, 1 if number > 2 else -1)
            if number % 3:
                self.idle()

    def _last(self, role: Role) -> Message | None:
        return next((m for m in reversed(self.state.messages) if m.role is role), None)

    # --- the engine -----------------------------------------------------------------------------

    def _pick(self, place: int, number: int) -> Generate | None:
        unfinished = self.engine.unfinished
        return unfinished[(3 * place + number) % len(unfinished)] if unfinished else None

    def read(self, place: int, number: int) -> None:
        if asked := self._pick(place, number):
            self.engine.report_prompt_progress(1, 40, request=asked.request)

    def text(self, place: int, number: int) -> None:
        if asked := self._pick(place, number):
            word = WORDS[(number + place) % len(WORDS)]
            if asked.request in self.state.generations:
                self.texts[self.messages[asked.request]] += word
            self.engine.write(word, request=asked.request)

    def finish(self, place: int, number: int) -> None:
        if asked := self._pick(place, number):
            stopped = any(
                isinstance(each, Cancel) and each.request == asked.request
                for each in self.engine.commands
            )
            reason = FinishReason.CANCELLED if stopped else FinishReason.END
            self.engine.finish(reason, request=asked.request)

    def fail(self, place: int, number: int) -> None:
        if asked := self._pick(place, number):
            self.engine.fail("It failed.", "Try again.", request=asked.request)

    def drain(self, *_: int) -> None:
        self.controller.drain()

    # --- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        """What holds at any time, once the engine's events are handled."""
        answers = [m for b in self.state.branches.values() for m in b if m.id in self.texts]
        unfinished = {each.message for each in self.state.generations.values()}
        unfinished |= self.state.queued.keys()
        for message in answers:
            if message.id in unfinished:
                assert message.id not in self.ends, "an answer that has ended goes on"
            else:
                assert message.state is not MessageState.STREAMING
                assert self.ends.setdefault(message.id, message.state) is message.state
            assert message.text == self.texts[message.id]
        requests = {each.request for each in self.engine.unfinished}
        assert self.state.generations.keys() <= requests

    def check_end(self) -> None:
        """What holds once every request has ended."""
        self.idle()
        while self.engine.unfinished:
            self.finish(0, 0)
            self.idle()  # what waited for that answer is sent
        self.check()
        assert not self.state.generations
        assert not self.state.queued
        assert not self.state.waiting
        while self.state.deletions:
            self.controller.deletions.undo()
            self.idle()
        for number, text in self.texts.items():
            stored = self.stored(number)
            assert stored.text == text
            assert stored.state in (self.ends.get(number, stored.state),)
            assert stored.state is not MessageState.STREAMING

    def stored(self, message: int) -> Message:
        """A message of any branch, read from the database file."""
        found: list[Message] = []
        owner = self.owners[message]

        def read(store: Store) -> Message:
            branch = store.show_branch(owner, message)
            return next(each for each in branch if each.id == message)

        self.store_queue.read(read, found.append)
        until(lambda: bool(found))
        return found[0]

    def close(self) -> None:
        wait_for_workers(self.controller)
        self.controller.close()
        for each in (self.controller, self.store_queue, self.state, self.states.library):
            each.deleteLater()
        for each in (self.states.adapters, self.states.sessions):
            each.deleteLater()
        flush()


USER = ("send", "send", "send", "show", "stop", "delete", "regenerate", "edit", "sibling")
ENGINE = ("read", "text", "text", "text", "finish", "fail", "drain")
STEPS = st.lists(
    st.tuples(st.sampled_from(USER + ENGINE), st.integers(0, 2), st.integers(0, 5)),
    min_size=20,
    max_size=60,
)


@settings(max_examples=40)
@given(steps=STEPS)
def test_every_answer_ends_once_with_the_text_of_its_events(
    qapp: QApplication, steps: list[tuple[str, int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        chats = Chats(Path(folder))
        try:
            for name, place, number in steps:
                if name in USER:
                    chats.drain()
                getattr(chats, name)(place, number)
                if name not in ENGINE or name == "drain":
                    chats.check()
            chats.check_end()
        finally:
            chats.close()
