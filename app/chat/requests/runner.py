"""Runner: sends the commands of a plan to the engine, and tracks the engine state they lead to.

Every command that changes the engine's adapters or its cached context is sent here, so their order
is the planner's, and does not depend on the order in which parts of the app receive signals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from app.chat.requests.planner import (
    Branch,
    EngineState,
    EngineTarget,
    Step,
    Uses,
    plan,
    snapshot_name,
)
from app.engines.client import EngineClient
from app.engines.run import Run
from app.settings.table import Settings
from app.state.chat import State
from engine import (
    AdaptersSet,
    Chat,
    ContextPolicy,
    DraftKind,
    ModelLoaded,
    Restore,
    Save,
    SetAdapters,
    Tool,
    Turn,
)

_GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class _Save:
    """A Save that was sent: whose context, and the request that had cached it."""

    run: Run
    conversation: int | None
    context_request: int


@dataclass(frozen=True, slots=True)
class _Alternative:
    """The other answer of a comparison: what is cached with it."""

    request: int
    target: EngineTarget
    model: ModelLoaded | None


class Runner(QObject):
    """One per engine; lives on the GUI thread."""

    sent = Signal(object, object)  # Run and EngineTarget
    context_lost = Signal(object)  # other adapters have invalidated it: the request of AdaptersSet

    def __init__(
        self,
        state: State,
        engine: EngineClient,
        settings: Callable[[], Settings],
        draft_kind: Callable[[], DraftKind],
        parent: QObject | None = None,
    ) -> None:
        """`draft_kind` is what drafts the tokens of the next answer."""
        super().__init__(parent)
        self._state = state
        self._engine = engine
        self._settings, self._draft_kind = settings, draft_kind
        self._engine_state = EngineState()
        self._context_request = 0  # request of the load or answer that cached `EngineState.branch`
        self._confirmed = True  # the engine has answered every SetAdapters
        self._model: ModelLoaded | None = None  # whose KV cache `_engine_state` describes
        self._saves: list[_Save] = []  # not finished yet
        self._alternative: _Alternative | None = None  # the last one

    @property
    def engine_state(self) -> EngineState:
        """State of the engine once it has run all commands sent."""
        if self._state.model.loaded is not self._model:
            self._model = self._state.model.loaded
            self._engine_state = replace(self._engine_state, branch=None, unsaved=None)
        if self._engine_state.unsaved in self._state.deleted:
            self._engine_state = replace(self._engine_state, unsaved=None)
        return self._engine_state

    @property
    def budget_bytes(self) -> int:
        """Disk space for cached conversations; 0: save none."""
        if not self._engine.capabilities.snapshots:
            return 0
        return round(self._settings().snapshot_budget_gb * _GIGABYTE)

    # --- commands -------------------------------------------------------------------------------

    def answer(
        self, branch: Branch, adapters: Uses, command: Chat, *, is_alternative: bool = False
    ) -> Run:
        """Send the commands that answer a branch with these adapters; returns the answer's run.

        `is_alternative`: its context is not the one to save, since it is compared with another answer.
        """
        command = replace(command, drafts=self._draft_kind())
        target = EngineTarget(
            branch,
            adapters,
            self.budget_bytes,
            command.turns,
            command,
            command.policy,
            is_alternative,
            command.tools,
        )
        run = self._run(target)
        assert run is not None  # the plan ends with the answer
        return run

    def apply_adapters(self, conversation: int | None, adapters: Uses) -> None:
        """Load and check the adapters of a conversation; its snapshot is loaded by `restore`."""
        self._run(EngineTarget(Branch(conversation), adapters, self.budget_bytes))

    def restore(
        self,
        branch: Branch,
        turns: tuple[Turn, ...],
        policy: ContextPolicy,
        tools: tuple[Tool, ...] = (),
    ) -> None:
        """Load the snapshot of a branch, unless the engine has the branch cached."""
        adapters = self._engine_state.adapters
        self._run(
            EngineTarget(branch, adapters, self.budget_bytes, turns, policy=policy, tools=tools)
        )

    def has_cached(self, branch: Branch) -> bool:
        """Whether the engine has this branch cached, with the adapters of the shown conversation."""
        now = self.engine_state
        return now.branch == branch and now.cached_with == now.adapters

    def save(self) -> None:
        """Save a snapshot of the cached context, if it is longer than the saved one."""
        self._run(EngineTarget(Branch(None), self._engine_state.adapters, self.budget_bytes))

    def cancel_saves_of(self, answer: int) -> None:
        """Cancel the saves of the context of an answer that was cancelled before it started.

        The engine would save the context of the answer before it under the wrong name.
        """
        self._cancel_saves(lambda save: save.context_request == answer)

    # --- context lost in the engine -------------------------------------------------------------

    def drop_unsaved(self) -> None:
        """Skip the pending snapshot."""
        self._engine_state = replace(self._engine_state, unsaved=None)

    def forget(self, conversations: Sequence[int]) -> None:
        """Save no snapshot of these conversations, not even one that was requested already."""
        if self._engine_state.unsaved in conversations:
            self.drop_unsaved()
        self._cancel_saves(lambda save: save.conversation in conversations)

    def on_answer_ended(self, request: int, *, started: bool) -> None:
        """An answer that never started has cached nothing: the cached branch is not known then."""
        if not started and self._alternative is not None and request == self._alternative.request:
            self._alternative = None
        if not started and request == self._context_request:
            self._engine_state = replace(self._engine_state, branch=None, unsaved=None)

    def on_kept(self, message: int) -> None:
        """An answer was kept of two compared ones: its context is the one to save."""
        alternative, now = self._alternative, self.engine_state
        if alternative is None or alternative.model is not self._model:
            return
        branch = alternative.target.branch
        newest = now.branch is not None and now.branch.messages[:-1] == branch.messages[:-1]
        if branch.messages[-1] == message and newest:
            self._set_cached(alternative.target, branch.conversation, alternative.request)
            self._alternative = None

    def on_load_lost(self, request: int) -> None:
        """A snapshot load was cancelled or failed: the cached branch is not known any more."""
        if request == self._context_request:
            self._engine_state = replace(self._engine_state, branch=None)

    def on_adapters_set(self, event: AdaptersSet) -> None:
        """Drop the cached context if other adapters invalidated it; emits `context_lost` then.

        Call it before the event is handled elsewhere, since answers may be requested there.
        """
        if event.changed and event.request > self._context_request:
            self._engine_state = replace(self._engine_state, branch=None, unsaved=None)
            self.context_lost.emit(event.request)

    def set_adapters(self, adapters: Uses, *, confirmed: bool) -> None:
        """Record the engine's adapters; `confirmed` when no SetAdapters is outstanding."""
        self._engine_state, self._confirmed = (
            replace(self._engine_state, adapters=adapters),
            confirmed,
        )

    # --- steps ----------------------------------------------------------------------------------

    def _run(self, target: EngineTarget) -> Run | None:
        """Send the commands of the plan; returns the run of the last one."""
        run = None
        for step in plan(self.engine_state, target):
            run = self._send(step, target)
        return run

    def _send(self, step: Step, target: EngineTarget) -> Run:
        match step:
            case Save():  # the engine saves it when that answer has ended
                step = replace(step, answer=self._context_request)
            case Chat():
                name = snapshot_name(target.branch.conversation)
                step = replace(step, conversation=name, budget_bytes=target.budget_bytes)
            case Restore() if target.answer is None and not self._confirmed:
                step = replace(step, adapters=None)  # those which the engine accepts
            case _:
                pass
        run = self._engine.submit(step)
        match step:
            case Save():
                saved = self._engine_state.unsaved
                self._saves = [each for each in self._saves if not each.run.is_over]
                self._saves.append(_Save(run, saved, self._context_request))
                self._engine_state = replace(self._engine_state, unsaved=None)
            case SetAdapters():
                self.set_adapters(step.adapters, confirmed=False)
            case Restore():
                self._set_cached(target, None, run.id)
            case Chat() if not target.is_alternative:
                self._set_cached(target, target.branch.conversation, run.id)
            case Chat():
                self._alternative = _Alternative(run.id, target, self._model)
        self.sent.emit(run, target)
        return run

    def _set_cached(self, target: EngineTarget, unsaved: int | None, request: int) -> None:
        self._engine_state = replace(
            self._engine_state,
            branch=target.branch,
            cached_with=target.adapters,
            unsaved=unsaved,
        )
        self._context_request = request

    def _cancel_saves(self, which: Callable[[_Save], bool]) -> None:
        for save in self._saves:
            if which(save):
                save.run.cancel()
