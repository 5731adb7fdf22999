"""The model of each chat: chosen by the user, or the one that wrote its first answer.

A chat without a model is answered by the one in use. `State.chat_model` says what the window has to
say of the shown chat: that its model is not in use, how long it takes to load, or that it is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from app.chat.settings.chat_settings import ChatSettingsController
from app.domain.model_ref import Local, ModelRef, Remote, local_path, remote_of
from app.domain.remote_fault import RemoteFault, RemoteFaultKind
from app.engines.registry import EngineRegistry
from app.state.chat import ChatModel, ModelPhase, Notice, ServedModel, State
from app.state.connections import ConnectionsState, EngineState
from app.state.remote_faults import remote_words
from app.system.translation import tr
from app.system.worker import BackgroundWorker

NOTICE = "chat model"  # kind of the notice that a chat's model is not there


class ChatModels:
    """Changes the models of chats in their settings, and looks whether the shown chat's is there."""

    def __init__(
        self,
        state: State,
        connections: ConnectionsState,
        settings: ChatSettingsController,
        engines: EngineRegistry,
        files: BackgroundWorker,
        load_seconds: Callable[[Path], float],
        last_elsewhere: Callable[[], str],
        keep_last: Callable[[str], None],
    ) -> None:
        """`files` is the worker for the user's files; `load_seconds` is 0 if it is not known;
        `last_elsewhere` and `keep_last` read and change the setting of that name.
        """
        self._state, self._connections = state, connections
        self._settings, self._engines = settings, engines
        self._last_elsewhere, self._keep_last = last_elsewhere, keep_last
        self._files, self._load_seconds = files, load_seconds
        self._missing: dict[ModelRef, bool] = {}  # as last found
        self._checked: object = None  # what the last check depended on
        # The last choice until it is in use: the chat, its model before, the chosen one, and
        # `last_elsewhere` before.
        self._choice: tuple[int | None, ModelRef | None, ModelRef, str] | None = None
        state.conversation_changed.connect(self._on_conversation)
        state.conversations_changed.connect(self.refresh)
        state.settings_changed.connect(self.refresh)
        state.model_changed.connect(self.refresh)
        connections.changed.connect(self.read_served)
        connections.offline_changed.connect(self.read_served)

    # --- intents --------------------------------------------------------------------------------

    def choose(self, conversation: int | None, model: ModelRef) -> None:
        """Answer in a chat by this model from now on; a new chat follows the model in use."""
        before = self._state.settings(conversation).model
        self._choice = conversation, before, model, self._last_elsewhere()
        is_own = conversation is not None or before not in (None, self.usual())
        self._set(conversation, model if is_own or isinstance(model, Remote) else None)
        self.use(model)

    def use(self, model: ModelRef | None) -> None:
        """A model is used: new chats begin with it, or with the model in use if it is not elsewhere."""
        last = model.text if isinstance(model, Remote) else ""
        if last != self._last_elsewhere():
            self._keep_last(last)

    def usual(self) -> Remote | None:
        """The model elsewhere that new chats begin with; None: the model in use."""
        model = remote_of(self._last_elsewhere())
        return None if model is None or self._engines.for_model(model) is None else model

    def undo_choice(self) -> None:
        """The chosen model will not be loaded after all: the chat has the one before again."""
        choice, self._choice = self._choice, None
        if choice is None:
            return
        conversation, before, model, last = choice
        if self._state.settings(conversation).model in (model, None):
            self._set(conversation, before)
        self.use(remote_of(last))

    def on_answer(self, conversation: int) -> None:
        """An answer of a chat has begun: a chat without a model has this one from now on."""
        chat = self._state.conversation(conversation)
        if chat is not None and chat.settings.model is None:
            self._set(conversation, self._state.model.model)
        self.use(self._state.settings(conversation).model)

    def refuses(self, conversation: int | None) -> bool:
        """Whether a chat cannot be answered since its model is gone; a notice says so then."""
        model = self._state.settings(conversation).model
        if model is None or self._state.has_in_use(model) or not self._is_missing(model):
            return False
        name = self._state.model_name(model)
        remedy = tr("Choose another model for this chat.")
        notice = Notice(missing_words(model, name), remedy, tr("Choose a model"))
        self._state.set_notice(NOTICE, notice)
        return True

    def offered(self, also: ModelRef | None) -> list[tuple[ModelRef, str]]:
        """The models that can write an answer, with this one, and names that tell them apart."""
        found: list[ModelRef] = [Local(file.path) for file in self._state.installed if not file.bad]
        found += [each.model for each in self._state.served]
        if also is not None and also not in found and not self._is_missing(also):
            found.insert(0, also)
        names = Counter(self._state.model_name(model) for model in found)
        whole = Counter(self._state.model_name(model, whole=True) for model in found)

        def name(model: ModelRef) -> str:
            short, long = self._state.model_name(model), self._state.model_name(model, whole=True)
            if names[short] == 1:
                return short
            path = local_path(model)
            return long if whole[long] == 1 or path is None else f"{long} ({path.parent.name})"

        return [(model, name(model)) for model in found]

    # --- the state ------------------------------------------------------------------------------

    def read_served(self) -> None:
        """Offer the models of the connections as they are now."""

        def problem(model: Remote, host: str) -> str:
            if self._connections.offline:
                return remote_words(RemoteFault(RemoteFaultKind.OFFLINE, host))[0]
            return self._problem(model)

        served = [ServedModel(*each) for each in self._engines.served()]
        self._state.set_served(
            [replace(each, problem=problem(each.model, each.host)) for each in served]
        )
        self.refresh()

    def refresh(self) -> None:
        """Show what is known of the shown chat's model, and look for it if that is not known."""
        state = self._state
        if self._choice is not None and state.has_in_use(self._choice[2]):
            self._choice = None  # made: what is given up later is another one
        model = state.settings(state.current).model
        state.set_capabilities(self._engines.capabilities(model or state.model.model))
        if model is None or state.has_in_use(model):
            state.set_chat_model(None)
            state.set_notice(NOTICE, None)
            return
        path, loaded = local_path(model), state.model.loaded
        in_use = state.model.phase is ModelPhase.READY and loaded is not None
        name, other = state.model_name(model), state.model.name if in_use else ""
        if isinstance(model, Remote) and not self._is_missing(model):
            server = state.capabilities.server
            context = next((each.context for each in state.served if each.model == model), 0)
            why = self._problem(model) or self._unlisted(model, server)
            state.set_chat_model(ChatModel(model, name, other, why, 0.0, server, context))
            return
        self._look_for(model)
        if name == other:  # two files of one model
            name, other = state.model_name(model, whole=True), state.model.full_name
        missing = missing_words(model, name) if self._is_missing(model) else ""
        seconds = self._load_seconds(path) if path is not None and not missing else 0.0
        state.set_chat_model(ChatModel(model, name, other, missing, seconds))

    def _on_conversation(self) -> None:
        self._checked = None
        self._state.set_notice(NOTICE, None)
        self.refresh()

    # --- steps ----------------------------------------------------------------------------------

    def _set(self, conversation: int | None, model: ModelRef | None) -> None:
        settings = replace(self._state.settings(conversation), model=model)
        self._settings.change(conversation, settings)

    def _is_missing(self, model: ModelRef) -> bool:
        return self._engines.for_model(model) is None or self._missing.get(model, False)

    def _problem(self, model: Remote) -> str:
        """Why the server of a model does not answer, as last found."""
        row = self._connections.engine(model.connection)
        return row.problem if row is not None and row.state is EngineState.FAILED else ""

    def _unlisted(self, model: Remote, server: str) -> str:
        """That a server does not list a model any more; "" if it does."""
        if self._engines.lists(model):
            return ""
        return remote_words(RemoteFault(RemoteFaultKind.NO_MODEL, server, model.id))[0]

    def _look_for(self, model: ModelRef) -> None:
        """Look on the worker whether a model's file is there, once for each list of models."""
        path, depends = local_path(model), (model, self._state.installed)
        if path is None or self._checked == depends:
            return
        self._checked = depends

        def found(missing: bool) -> None:
            if self._missing.get(model, False) != missing:
                self._missing[model] = missing
                self.refresh()

        self._files.run(lambda: _is_gone(path), found)


def missing_words(model: ModelRef, name: str) -> str:
    """The sentence that a chat's model is not there."""
    if isinstance(model, Local):
        return tr("{name}, the model of this chat, is not on this computer any more.", name=name)
    return remote_words(RemoteFault(RemoteFaultKind.NO_CONNECTION, model=name))[0]


def _is_gone(path: Path) -> bool:
    try:
        return not path.exists()
    except OSError:  # loading it says why
        return False
