"""Adapter controller test stage: `Adapters` and `Runner` over a fake engine and a real store."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from app.chat.models.adapters import Adapters
from app.chat.requests.planner import Branch, Uses
from app.chat.requests.prompts import PromptBuilder
from app.chat.requests.runner import Runner
from app.chat.settings.chat_settings import ChatSettingsController
from app.domain.chat import Conversation
from app.domain.chat_settings import NO_SETTINGS, settings_text
from app.domain.ids import new_id
from app.domain.message import Message, MessageState
from app.domain.model_ref import Local
from app.engines.local import LocalClient
from app.engines.run import Run, start
from app.settings.table import Settings
from app.state.adapters import AdapterState
from app.state.chat import Generation, ModelPhase, ModelStatus, State
from app.state.chat_settings import ChatSettingsState
from app.store.store import Store
from app.store.writer import StoreQueue
from app.system.worker import BackgroundWorker
from engine import (
    AdapterInfo,
    AdaptersSet,
    AdapterUse,
    Chat,
    DraftKind,
    Event,
    Failed,
    Fault,
    Load,
    ModelLoaded,
    Role,
    SetAdapters,
    Turn,
)
from fakes import MODEL, FakeEngine
from stage import flush, reraise, until, wait_for_workers

FOLDER = Path("/home/mika/adapters").absolute()  # with a drive on Windows
PIRATE = FOLDER / "pirate-speech.gguf"
FORMAL = FOLDER / "formal-german"
SHORT = FOLDER / "short_answers.gguf"
WRONG = "The adapter formal-german is for a model of width 2,048, this one has 576."
REMEDY = "Choose one made for SmolLM2 135M."
DIGEST = "5f3a" * 16


def accept(engine: FakeEngine, request: SetAdapters | None = None) -> None:
    """Reply `AdaptersSet` to `request`, or to the newest `SetAdapters`."""
    command = request or engine.last(SetAdapters)
    assert isinstance(command, SetAdapters)
    infos = tuple(
        AdapterInfo(use.path, use.path.stem, DIGEST, "GGUF", 16, 210, 4_882_432, use.strength)
        for use in command.adapters
    )
    engine.deliver(AdaptersSet(command.request, infos, True))


def refuse(
    engine: FakeEngine,
    request: SetAdapters | None = None,
    message: str = WRONG,
    fault: Fault | None = None,
) -> None:
    """Reply `Failed` to `request`, or to the newest `SetAdapters`; the stack stays as it was."""
    command = request or engine.last(SetAdapters)
    engine.deliver(Failed(command.request, message, REMEDY, fault=fault or Fault()))


class AdapterStage:
    """`app.chat.models.adapters` with a scripted engine and a real store."""

    def __init__(self, folder: Path) -> None:
        self.state = State()
        self.shown = AdapterState()
        self.store_queue = StoreQueue(folder / "conversations.sqlite")
        self.engines: list[FakeEngine] = []
        self.link = LocalClient(self._engine, lambda event: None)
        self.files = BackgroundWorker("files", self.link)
        self.runner = Runner(self.state, self.link, Settings, lambda: DraftKind.LOOKUP)
        prompts = PromptBuilder(self.state, lambda _: Settings())
        self.settings = ChatSettingsController(
            self.state,
            ChatSettingsState(),
            self.store_queue,
            self.link,
            prompts,
            reraise,
        )
        self.adapters = Adapters(
            self.state,
            self.shown,
            self.store_queue,
            self.link,
            self.runner,
            self.files,
            self.settings,
            reraise,
        )
        self.settled = 0
        self._answered = 0  # the newest request that has its reply
        self._closed = False
        self.request = 0  # of the last answer
        self.uses: Uses = ()  # its adapters
        self.shown.request_finished.connect(self._count)
        self.adapters.read()
        self.settings.read()
        self.store_queue.read(Store.conversations, self.state.set_conversations)

    def _engine(self, deliver: Callable[[Event], None]) -> FakeEngine:
        self.engines.append(FakeEngine(deliver))
        return self.engines[-1]

    def _count(self) -> None:
        self.settled += 1

    async def _load(self, run: Run) -> None:
        loaded = await run.result(ModelLoaded)
        status = ModelStatus(
            ModelPhase.READY,
            Local(loaded.path),
            loaded.name,
            loaded=loaded,
            kept=run.is_cancelled,
        )
        self.state.set_model(status)

    @property
    def engine(self) -> FakeEngine:
        return self.engines[0]

    @property
    def requested_stacks(self) -> list[tuple[AdapterUse, ...]]:
        """The stack of every `SetAdapters` sent so far."""
        return [each.adapters for each in self.engine.commands if isinstance(each, SetAdapters)]

    def load(self) -> None:
        """Load another model."""
        self.state.set_model(replace(self.state.model, phase=ModelPhase.LOADING))
        start(self._load(self.link.submit(Load(MODEL))), reraise)
        self.engine.finish_load()
        self.drain()

    def load_and_cancel(self) -> None:
        """Begin to load another model, and change one's mind: the engine keeps the one it has."""
        self.state.set_model(replace(self.state.model, phase=ModelPhase.LOADING))
        run = self.link.submit(Load(MODEL))
        start(self._load(run), reraise)
        run.cancel()

    def start_answer(self, conversation: int | None, *, without_adapters: bool = False) -> bool:
        """Start an answer; False while the engine has to set the adapter stack first."""
        given = () if without_adapters else None
        adapters = self.adapters.uses_for(conversation, given)
        if adapters is None:
            return False
        self.uses = adapters
        turns = (Turn(Role.USER, "Hello"),)
        self.request = self.runner.answer(Branch(conversation), adapters, Chat(turns)).id
        return True

    def drain(self) -> None:
        """Process the events the engine has delivered."""
        self.link.drain()
        flush()

    def wait_until_idle(self) -> None:
        """Wait until the store and the file worker have no work left."""
        wait_for_workers(self.link)
        done: list[int] = []
        self.store_queue.flush(done.append)
        until(lambda: bool(done))
        flush()

    def accept(self) -> None:
        """Reply `AdaptersSet` to the one pending request."""
        (request,) = self._pending()
        self._answered = request.request
        accept(self.engine, request)
        self.drain()

    def refuse(self, message: str = WRONG, fault: Fault | None = None) -> None:
        """Reply `Failed` to the one pending request."""
        (request,) = self._pending()
        self._answered = request.request
        refuse(self.engine, request, message, fault)
        self.drain()

    def answer_requests(self, bad: Collection[Path] = ()) -> tuple[AdapterUse, ...]:
        """Reply to every request, refusing stacks with a file of `bad`; returns the final stack."""
        applied = self.shown.applied
        while pending := self._pending():
            assert len(self.requested_stacks) < 2000, "requests never end"
            request = pending[0]
            self._answered = request.request
            if any(use.path in bad for use in request.adapters):
                refuse(self.engine, request)
            else:
                applied = request.adapters
                accept(self.engine, request)
            self.drain()
        return applied

    def _pending(self) -> list[SetAdapters]:
        commands = [each for each in self.engine.commands if isinstance(each, SetAdapters)]
        return [each for each in commands if each.request > self._answered]

    def start_streaming(self, conversation: int, message: int = 1) -> None:
        """Set the state of an answer that is streaming into a conversation."""
        self.state.set_generation(Generation(self.request, conversation, message))

    def close(self) -> None:
        """End the worker threads; closing twice is allowed."""
        if self._closed:
            return
        self._closed = True
        self.adapters.flush()
        self.store_queue.close()
        self.files.close()
        for part in (self.runner, self.link, self.store_queue, self.shown, self.state):
            part.deleteLater()
        flush()


def restart(stage: AdapterStage, tmp_path: Path) -> AdapterStage:
    """Close the app and start it again on the same data folder."""
    stage.close()
    made = AdapterStage(tmp_path)
    made.wait_until_idle()
    return made


def begin(stage: AdapterStage, title: str = "Sky") -> int:
    """Create a conversation as the controller does at its first message; returns its id."""
    number, settings = new_id(), stage.state.new_chat
    stage.settings.change(None, NO_SETTINGS)
    text = settings_text(settings)
    stage.store_queue.write(lambda store: store.create_conversation(title, text, id=number))
    row = Conversation(number, title, 0.0, 0.0, None, settings)
    stage.state.set_conversations([row, *stage.state.conversations])
    stage.adapters.begin(number)
    stage.state.show(number, [])
    return number


def answer(stage: AdapterStage, conversation: int) -> int:
    """Add an empty streaming answer as the controller does; returns its id."""
    number, streaming = new_id(), MessageState.STREAMING

    def write(store: Store) -> None:
        store.add_message(conversation, None, Role.ASSISTANT, "", streaming, id=number)

    stage.store_queue.write(write)
    stage.state.add(
        Message(number, conversation, None, Role.ASSISTANT, (), streaming, 0, "", "", 0, 0, 0, 1, 1)
    )
    return number


def uses(*pairs: tuple[Path, float]) -> tuple[AdapterUse, ...]:
    return tuple(AdapterUse(path, strength) for path, strength in pairs)
