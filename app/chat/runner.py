"""Sends the steps of a plan to the engine, and knows what it holds once it has carried them out.

Everything that changes the engine's adapters or its cached context goes through here, whoever asks:
the order of the commands is the plan's, not that in which parts of the app hear of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.chat.planner import Branch, Held, Step, Uses, Wanted, plan
from app.engines.client import EngineRequests
from app.settings.table import Settings
from app.state.chat import State
from app.store.writer import Archive
from engine import AdaptersSet, Generate, LoadSnapshot, ModelLoaded, SaveSnapshot, SetAdapters, Turn

_GIGABYTE = 1e9


class Runner(QObject):
    """One for one engine; lives on the window's thread."""

    sent = Signal(object, object)  # a step with its request, and the Wanted it is a step of
    named = Signal(int)  # a conversation of this run can be saved from now on

    def __init__(
        self,
        state: State,
        archive: Archive,
        link: EngineRequests,
        settings: Callable[[], Settings],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._state = state
        self._archive = archive
        self._link = link
        self._settings = settings
        self._held = Held()
        self._since = 0  # the request that brought the engine to `Held.branch`
        self._settled = True  # the engine has answered every SetAdapters
        self._model: ModelLoaded | None = None  # the one that holds it
        self._names: dict[int, str] = {}  # of conversations begun in this run

    @property
    def held(self) -> Held:
        """What the engine holds once it has carried out all that was sent."""
        if self._state.model.loaded is not self._model:
            self._model = self._state.model.loaded
            self._held = replace(self._held, branch=None, unsaved=None)
        if self._held.unsaved in self._state.deleted:
            self._held = replace(self._held, unsaved=None)
        unsaved = self._held.unsaved
        return replace(self._held, unsaved_name="" if unsaved is None else self.name(unsaved))

    @property
    def budget_bytes(self) -> int:
        """Disk space for saved contexts; 0 for none."""
        return round(self._settings().snapshot_budget_gb * _GIGABYTE)

    # --- bringing the engine somewhere ----------------------------------------------------------

    def answer(self, branch: Branch, adapters: Uses, command: Generate) -> int:
        """Have a branch answered with these adapters; the request, or 0 while it has to wait.

        The engine may refuse adapters, and then others are wanted: so nothing is sent after them
        until it has answered. Ask again then.
        """
        conversation = branch.conversation
        name = "" if conversation is None else self.name(conversation)
        wanted = Wanted(branch, adapters, self.budget_bytes, command.turns, name, command)
        request = self._run(wanted)
        if request and conversation is not None:
            self.learn_name(conversation)
        return request

    def bring(self, conversation: int | None, adapters: Uses) -> None:
        """Bring the engine to a conversation's adapters; its context is left for `restore`."""
        self._run(Wanted(Branch(conversation), adapters, self.budget_bytes))

    def restore(self, branch: Branch, turns: tuple[Turn, ...], name: str) -> None:
        """Bring back what is saved of a branch, unless the engine holds it."""
        self._run(Wanted(branch, self._held.adapters, self.budget_bytes, turns, name))

    def save(self) -> None:
        """Have the engine save its context, where it is longer than what is saved.

        A conversation that a slow disk has given no number yet waits for its name, for as long as
        the engine holds it.
        """
        self._run(Wanted(Branch(None), self._held.adapters, self.budget_bytes))

    # --- what the engine no longer holds --------------------------------------------------------

    def drop_unsaved(self, conversations: Sequence[int] | None = None) -> None:
        """Do not save these conversations' context later; None stands for whichever it is."""
        if conversations is None or self._held.unsaved in conversations:
            self._held = replace(self._held, unsaved=None)

    def lost(self, request: int) -> None:
        """A load was given up or failed: nothing is known of what the engine holds since."""
        if request == self._since:
            self._held = replace(self._held, branch=None)

    def on_adapters_set(self, event: AdaptersSet) -> bool:
        """Other adapters make the engine forget its context; whether it forgot what it held."""
        forgot = event.changed and event.request > self._since
        if forgot:
            self._held = replace(self._held, branch=None, unsaved=None)
        return forgot

    def set_adapters(self, adapters: Uses, *, settled: bool) -> None:
        """The engine has this stack; `settled` when no other is on its way."""
        self._held, self._settled = replace(self._held, adapters=adapters), settled

    # --- names ----------------------------------------------------------------------------------

    def name(self, conversation: int) -> str:
        """What a conversation is saved as, the same in every run; empty while not known."""
        return str(conversation) if conversation >= 0 else self._names.get(conversation, "")

    def learn_name(self, conversation: int) -> None:
        """Look up the number the store has given a conversation of this run; `named` says it."""
        if self.name(conversation):
            return
        numbers = self._archive.conversations

        def found(stored: int) -> None:
            if stored:
                self._names[conversation] = str(stored)
                self.named.emit(conversation)

        self._archive.read(lambda store: numbers.known(conversation), found)

    # --- steps ----------------------------------------------------------------------------------

    def _run(self, wanted: Wanted) -> int:
        """Send what can be sent of the plan; returns the request of the answer, or 0."""
        request = 0
        for step in plan(self.held, wanted):
            waits = wanted.answer is not None and not self._settled
            if waits and isinstance(step, LoadSnapshot | Generate):
                return 0
            request = self._send(step, wanted)
        return request if wanted.answer is not None else 0

    def _send(self, step: Step, wanted: Wanted) -> int:
        request = self._link.send(lambda number: replace(step, request=number))
        match step:
            case SaveSnapshot():
                self._held = replace(self._held, unsaved=None)
            case SetAdapters():
                self.set_adapters(step.adapters, settled=False)
            case LoadSnapshot():
                self._held = replace(self._held, branch=wanted.branch, unsaved=None)
                self._since = request
            case Generate():
                unsaved = wanted.branch.conversation
                self._held = replace(self._held, branch=wanted.branch, unsaved=unsaved)
                self._since = request
        self.sent.emit(replace(step, request=request), wanted)
        return request
