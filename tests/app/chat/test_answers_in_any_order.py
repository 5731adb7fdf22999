"""Any order of messages, stops, deletions, branches and engine events over three conversations.

Every answer has one final state, which it keeps, and its stored text is that of its events. It is
written by the model of its conversation, or by the one that was chosen for it alone.
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
from app.domain.model_ref import Local
from app.engines.local import local
from app.settings.table import Settings
from app.state.chat import ModelPhase
from app.state.states import States
from app.store.store import Store
from app.store.writer import StoreQueue
from engine import (
    Chat,
    Event,
    Failed,
    FinishReason,
    Load,
    ModelUnloaded,
    Role,
)
from fakes import Cancel, FakeEngine
from stage import flush, until, wait_for_workers

WORDS = ("Because", " of", " the", " air", "\n\n", " and", " light")


class LoadingEngine(FakeEngine):
    """Knows which model is loaded, as the engine does."""

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        super().__init__(deliver)
        self.loaded = Path()

    def finish_load(self, name: str = "", request: int = 0, **_: object) -> None:  # type: ignore[override]
        self.loaded = self.load.path
        super().finish_load(name, request)

    def end_load(self, load: Load, *, fails: bool) -> None:
        """End one load, the oldest first; a cancelled one leaves no model."""
        newer = self.commands
        cancelled = any(isinstance(c, Cancel) and c.request == load.request for c in newer)
        if cancelled or fails:
            self.loaded = Path()
            self.deliver(ModelUnloaded(load.request))
        if fails and not cancelled:
            self.deliver(Failed(load.request, "It is damaged.", "Choose another."))
        elif not cancelled:
            self.finish_load(load.path.stem)


class Chats:
    """Three conversations over a fake engine, and what each answer should be in the end."""

    def __init__(self, folder: Path) -> None:
        self.states = States()
        self.state = self.states.chat
        self.store_queue = StoreQueue(folder / "conversations.sqlite")
        self.engines: list[LoadingEngine] = []
        self.controller = Controller(
            self.states, self.store_queue, Settings(), folder / "settings.json", local(self._engine)
        )
        self.chats: list[int | None] = [None, None, None]
        self.texts: dict[int, str] = {}  # message of an answer: the text of its events
        self.messages: dict[int, int] = {}  # request: its message
        self.owners: dict[int, int] = {}  # message: its conversation
        self.ends: dict[int, MessageState] = {}
        self.wrong: list[object] = []  # models of answers that others should have written
        self.given: dict[int, Local] = {}  # message of an answer: the model chosen for it alone
        self.files = [folder / name for name in ("one.gguf", "two.gguf", "three.gguf")]
        for file in self.files:
            file.write_bytes(b"GGUF")
        self.state.generations_changed.connect(self._note_requests)
        self.controller.start(self.files[0])
        self.engine.finish_load("one")
        self.loads = 1  # that the engine has ended
        self.idle()

    def _engine(self, deliver: Callable[[Event], None]) -> LoadingEngine:
        self.engines.append(LoadingEngine(deliver))
        return self.engines[-1]

    @property
    def engine(self) -> LoadingEngine:
        return self.engines[0]

    def _note_requests(self) -> None:
        for request, generation in self.state.generations.items():
            if request not in self.messages:
                chats = self.state.settings(generation.conversation).model
                wanted = self.given.get(generation.message) or chats or self.state.model.model
                if not generation.model == wanted == Local(self.engine.loaded):
                    self.wrong.append((generation.model, wanted, self.engine.loaded))
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

    def regenerate_with(self, place: int, number: int) -> None:
        self.show(place, 0)
        model = Local(self.files[number % 3])
        if (message := self._last(Role.ASSISTANT)) and not self.state.busy:
            self.controller.regenerate_with(message.id, model)
            self.given[self.state.messages[-1].id] = model

    def choose(self, place: int, number: int) -> None:
        self.show(place, 0)
        self.controller.load_model(self.files[number % 3])

    def use_loaded(self, place: int, _: int) -> None:
        self.show(place, 0)
        self.controller.model_use.use_loaded()

    def cancel_load(self, *_: int) -> None:
        self.controller.model_use.cancel_load()

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

    def _pick(self, place: int, number: int) -> Chat | None:
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

    def end_load(self, _: int, number: int) -> None:
        """The oldest load that has not ended succeeds, fails, or was cancelled."""
        loads = [each for each in self.engine.commands if isinstance(each, Load)]
        if self.loads < len(loads):
            load = loads[self.loads]
            self.loads += 1
            self.engine.end_load(load, fails=number == 5)

    def drain(self, *_: int) -> None:
        self.controller.drain()

    # --- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        """What holds at any time, once the engine's events are handled."""
        assert not self.wrong
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
        for _ in range(200):
            if not (self.engine.unfinished or self.is_loading):
                if not self.state.queued:
                    break
                # No model is left: an answer that any may write waits until one is chosen.
                assert self.state.model.phase in (ModelPhase.NONE, ModelPhase.FAILED)
                wanted = {self.state.settings(each).model for each in self.state.queued.values()}
                assert wanted == {None}
                self.controller.switch.load(Local(self.files[0]))
            self.finish(0, 0)
            self.end_load(0, 0)
            self.idle()  # what waited for that answer, or for its model, is sent
        else:
            raise AssertionError("the answers do not end")
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

    @property
    def is_loading(self) -> bool:
        return self.loads < self.engine.count(Load)

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
USER += ("regenerate_with", "choose", "use_loaded", "cancel_load")
ENGINE = ("read", "text", "text", "text", "finish", "fail", "drain", "end_load", "end_load")
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
