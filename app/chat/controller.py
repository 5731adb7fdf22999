"""The chat controller: turns user intents into requests, and their results into state.

Only it and its parts call the engines and the store. Every intent returns at once: the state has
changed when it returns, and the disk follows soon after. Each part awaits what it has asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from app.chat.answering.answers import FULL_NOTICE, Answers
from app.chat.answering.chat_models import ChatModels
from app.chat.answering.comparison import Comparisons
from app.chat.answering.continuation import Continuation
from app.chat.answering.model_switch import NOTICE as SWITCH_NOTICE
from app.chat.answering.model_switch import ModelSwitch
from app.chat.answering.model_use import ModelUse
from app.chat.answering.reading_aloud import ReadingAloud
from app.chat.chat_list.conversations import Conversations
from app.chat.chat_list.copies import Copies
from app.chat.chat_list.deletions import Deletions
from app.chat.chat_list.folders import Folders
from app.chat.chat_list.titles import Titles
from app.chat.documents.collection_choices import CollectionChoices
from app.chat.documents.collections import Collections
from app.chat.documents.encoder import Encoder
from app.chat.documents.file_texts import TextExtractor
from app.chat.documents.indexed_files import IndexedFiles
from app.chat.documents.indexing import Indexing
from app.chat.documents.passage_documents import PassageDocuments
from app.chat.documents.pictures import Pictures
from app.chat.documents.retrieval import Retrieval
from app.chat.documents.rewritten import Rewritten
from app.chat.last_chat import LastChat
from app.chat.models.adapters import Adapters
from app.chat.models.draft_model import SpeculativeModel
from app.chat.models.model_loader import ModelLoader, expect_model, first_model
from app.chat.models.snapshots import SnapshotController
from app.chat.navigation import Navigation
from app.chat.quitting import Quitting, RejectedNotices
from app.chat.requests.performance import Performance
from app.chat.requests.prompts import PromptBuilder
from app.chat.requests.runner import Runner
from app.chat.requests.token_count import TokenCount
from app.chat.sending.attachments import NOTICE as ATTACHMENTS_NOTICE
from app.chat.sending.attachments import Attachments, default_extractor
from app.chat.sending.detail_tokens import DetailCounts
from app.chat.sending.document_pictures import NOTICE as SCAN_NOTICE
from app.chat.sending.document_pictures import DocumentPictures
from app.chat.sending.drafts import UnsentText
from app.chat.sending.fit import Fit
from app.chat.sending.messages import Messages
from app.chat.sending.opening import Opening
from app.chat.sending.outbox import Outbox
from app.chat.sending.screenshots import Screenshots
from app.chat.sending.sight import NOTICE as SIGHT_NOTICE
from app.chat.sending.sight import Sight
from app.chat.servers.network import Network, Outside
from app.chat.settings.chat_settings import ChatSettingsController
from app.chat.settings.presets import Presets
from app.chat.settings.saved_settings import SavedSettings
from app.chat.settings.snippets import Snippets
from app.chat.settings.tool_paths import ToolPaths
from app.chat.store_faults import StoreFaults
from app.chat.tools.tools import Tools
from app.chat.transfer.controller import DONE_NOTICE, Transfer
from app.chat.updates import Updates
from app.domain.chat_settings import NO_SETTINGS
from app.domain.deltas import AnswerUsage
from app.domain.generation_settings import GenerationSettings
from app.domain.message import AnswerAgain
from app.domain.model_ref import Local, ModelRef, Remote, local_path
from app.domain.parts import (
    Content,
    Parts,
)
from app.domain.remote_fault import RemoteFaultKind
from app.engines.client import ClientMaker
from app.engines.local import local
from app.engines.registry import EngineRegistry
from app.engines.run import start
from app.library.gpu_support import GPUSupportController
from app.library.service import Library
from app.settings.table import Settings, with_own, without_own
from app.settings.used_sampling import UsedValue
from app.state.chat import Notice
from app.state.states import States
from app.store.blobs import Blobs
from app.store.writer import StoreQueue
from app.system import restart
from app.system.file_manager import show_in_folder
from app.system.speech import Speech
from app.system.translation import tr
from app.system.worker import BackgroundWorker
from engine import (
    DevicesFound,
    Event,
    FindDevices,
    delete_snapshots,
    snapshots_size,
)

if TYPE_CHECKING:
    from app.domain.tools import ToolSource


class Controller(QObject):
    """Handles the intents of the window."""

    settings_changed = Signal()
    models_wanted = Signal()  # show the models that can be downloaded
    may_quit = Signal()  # all is saved, or the user quits without saving
    _faulted = Signal(object)  # an uncaught exception, from any thread

    def __init__(
        self,
        states: States,
        store_queue: StoreQueue,
        settings: Settings,
        settings_file: Path,
        client: ClientMaker | None = None,
        parent: QObject | None = None,
        outside: Outside | None = None,
        extractor: Callable[[], TextExtractor] | None = None,
        tool_source: Callable[[], ToolSource] | None = None,
    ) -> None:
        """`client` makes the client of the engine; None: the engine in this process. `extractor`
        makes what extracts the texts of attached files; None: that of `app.documents`. `tool_source`
        makes what all tools come from; None: those of `app.tools`.
        """
        super().__init__(parent)
        self.state = state = states.chat
        self.settings = settings
        self._store_queue = store_queue
        self._engine = (client or local())(
            lambda event: start(self._follow(event), self.report), self
        )
        self.engines = EngineRegistry(self._engine, outside.remote if outside else None)
        runner = Runner(
            state,
            self._engine,
            lambda: self.settings,
            lambda: self.speculative_model.kind(self.settings),
            self,
        )
        state.set_capabilities(self.engines.capabilities(None))
        blobs = Blobs(store_queue.path)
        self._prompts = PromptBuilder(
            state, lambda model: self._model_settings(model), file=blobs.find,
            tools=lambda conversation: self.tools.of(conversation),
        )  # fmt: skip
        # The user's files may be on a drive that does not respond; settings must not wait for it.
        user_files = BackgroundWorker("user files", self)
        self._own_files = BackgroundWorker("own files", self)
        self._saved_settings = SavedSettings(self.state, self._own_files, settings_file)
        self.sessions = SnapshotController(
            state,
            states.sessions,
            runner,
            self._own_files,
            self._prompts,
            size=snapshots_size,
            delete=delete_snapshots,
            report=self.report,
        )
        self.chat_settings = ChatSettingsController(
            state,
            states.chat_settings,
            store_queue,
            self._engine,
            self._prompts,
            self.report,
            lambda: self.chat_models.usual(),
        )
        self.adapters = Adapters(
            state, states.adapters, store_queue, self._engine, runner, user_files,
            self.chat_settings, self.report,
        )  # fmt: skip
        self.retrieval = Retrieval(state, store_queue, self.edit, self.continue_answer)
        self.tools: Tools = Tools(
            state, states.tools, states.tool_servers, store_queue, self._engine, blobs, self.retrieval,
            lambda: self.settings, self.engines.capabilities, self._own_files,
            extractor or default_extractor, self.report, self, source=tool_source,
        )  # fmt: skip
        self._answers = Answers(
            state,
            store_queue,
            self._engine,
            self.adapters,
            runner,
            self._on_answer_ended,
            self.report,
            remote=outside.remote if outside else None,
            retrieval=self.retrieval,
            used=self._on_used,
            want_model=self._load_for_answers,
            began=lambda conversation: self.chat_models.on_answer(conversation),
            reached=self._on_reached,
            tools=lambda: self.tools.calls,
            most_rounds=lambda: self.settings.tool_rounds,
        )
        states.adapters.request_finished.connect(self._answers.start_next)
        self.library = Library(state, states.library, settings, user_files, self)
        self.chat_models = ChatModels(
            state,
            states.connections,
            self.chat_settings,
            self.engines,
            user_files,
            self.library.load_times.seconds,
            lambda: self.settings.last_elsewhere,
            lambda last: self.change_settings(last_elsewhere=last),
        )
        self.encoder = Encoder(
            state, states.library, states.encoder, self._engine, user_files,
            lambda: self.settings.embedding_model, self.library.download, self.report, self,
        )  # fmt: skip
        self.settings_changed.connect(self.encoder.choose_again)
        self.speculative_model = SpeculativeModel(
            state, self._engine,
            lambda path: self.library.defaults.own(path).draft,
            lambda path: self.library.defaults.own(path).runs_on, self.report,
        )  # fmt: skip
        self.library.defaults.changed.connect(self.speculative_model.update)
        self.attachments = Attachments(
            state,
            states.attachments,
            store_queue,
            lambda: self.drafts,
            lambda: self.last_chat.stay(),
            user_files,
            self,
            extractor,
        )
        self.screenshots = Screenshots(state, self.attachments, self)
        self.pictures = Pictures(
            state, states.pictures, blobs, extractor or default_extractor, self
        )
        self.drafts = UnsentText(state, states.attachments, store_queue, self.attachments.restore)
        self.outbox = Outbox(
            state,
            self.drafts,
            lambda chat, parts, again: self.messages.send_in(chat, parts, again),
        )
        self.models = ModelLoader(
            state,
            self._engine,
            loaded=self._remember_model,
            failed=self._answers.fail_waiting,
            changed=self._answers.start_next,
            report=self.report,
        )
        self.token_count = TokenCount(state, self._engine, state.set_typed_tokens, self.report)
        self.library.defaults.changed.connect(self.chat_settings.refresh)
        self.settings_changed.connect(self.chat_settings.refresh)
        self.performance = Performance(
            state, states.performance, store_queue, self._engine, self.report
        )
        self.conversations = Conversations(state, store_queue)
        self.titles = Titles(
            state,
            self._engine,
            self._prompts,
            self.conversations.rename,
            lambda: self.settings.model_titles == "on",
            self.report,
        )
        self.folders = Folders(state, store_queue)
        self.navigation = Navigation(state, store_queue, self._answers, self.drafts)
        self.rewritten = Rewritten(state, user_files)
        self.tool_paths = ToolPaths(states.tools, user_files, self)
        self.copies = Copies(state, self.conversations, self._answers.save, self.navigation.open)
        self.presets = Presets(
            state,
            states.presets,
            store_queue,
            self.chat_settings,
            self.conversations,
            user_files,
            lambda: self.settings,
            self.library.defaults,
            lambda: self.last_chat.stays_empty,
            self.chat_models.usual,
            self,
        )
        self.presets.new_chat_requested.connect(self.navigation.new)
        self.settings_changed.connect(self.presets.refresh)
        self.comparisons = Comparisons(
            state,
            store_queue,
            self._answers,
            self._prompts,
            runner.on_kept,
        )
        index = store_queue.path.with_name("documents.sqlite")
        self.indexing = Indexing(state, states.indexing, index, self.encoder, self)
        self.indexed_files = IndexedFiles(
            state, states.attachments, self.indexing, store_queue, self
        )
        self.retrieval.search = self.indexing.search
        self.deletions = Deletions(
            state,
            store_queue,
            self.conversations,
            self.folders,
            stop=self._answers.stop,
            forget=self.sessions.forget,
            show=self.navigation.show,
        )
        self.switch = ModelSwitch(
            state, self.models, self._answers, self.sessions, self.library.defaults
        )
        self.model_use = ModelUse(
            state,
            self.chat_models,
            self.models,
            self.switch,
            self._answers,
            lambda: self.settings.last_model,
        )
        self.fit = Fit(
            state,
            states.attachments,
            self._engine,
            self._prompts,
            self.library,
            self.model_use,
            user_files,
            store_queue,
            self.report,
            self,
        )
        self.sight = Sight(
            state, self._prompts, self.model_use.choose, user_files,
            self.library.model_index.reclaimable, self.models_wanted.emit, states.attachments,
        )  # fmt: skip
        self.document_pictures = DocumentPictures(
            state, states.attachments, self.attachments, self._prompts.sees
        )
        self.detail_counts = DetailCounts(
            state, states.attachments, self._engine, self._prompts, self.report
        )
        self.quitting = Quitting(state, store_queue, self)
        self.quitting.may_quit.connect(self.may_quit)
        self._rejected_notices = RejectedNotices(state, store_queue)
        self.transfer = Transfer(
            state, states.transfer, store_queue,
            self.conversations, self.folders, self.deletions, self,
        )  # fmt: skip
        self.transfer.imported.connect(self.presets.read)
        self.opening = Opening(
            state,
            user_files,
            self.load_model,
            lambda paths: self.library.model_index.link(paths),
            self.transfer.preview,
            self.presets.offer,
            self.attachments.attach,
        )
        self.last_chat = LastChat(
            state,
            remember=lambda number: self.change_settings(last_conversation=number),
            open_conversation=self.navigation.open,
            stop_opening=self.navigation.stop_opening,
        )
        self.snippets = Snippets(states.snippets, store_queue)
        self.collections = Collections(
            state, states.collections, store_queue, self.indexing,
            index.with_name("collections.sqlite"), extractor or default_extractor,
            self.indexed_files, self.retrieval, self,
        )  # fmt: skip
        self.passage_documents = PassageDocuments(
            self.indexing, extractor or default_extractor, self
        )
        self.collection_choices = CollectionChoices(
            state, self.collections, self.chat_settings, store_queue.path.parent
        )
        self._faults = StoreFaults(
            state,
            store_queue,
            self._answers,
            self.adapters,
            self.chat_settings,
            self.conversations,
            self.folders,
            self.drafts,
            self.snippets,
            self.presets,
            self.collections,
        )
        self.reading = ReadingAloud(state, Speech(self))
        self.messages = Messages(
            state,
            store_queue,
            self._answers,
            self._prompts,
            self.chat_settings,
            self.comparisons,
            self.outbox,
            self.drafts,
            self.attachments,
            self.fit,
            self.sight,
            self._refuses,
            self._begin,
            lambda chats: self.folders.archive(chats, archived=False),
        )
        self._continuation = Continuation(state, store_queue, self._refuses, self.messages.answer)
        self.network = Network(
            states, lambda: self.settings, self.change_settings, self._own_files,
            outside or Outside(), self.deletions, self,
        )  # fmt: skip
        self.gpu_support = GPUSupportController(state, states.gpu, lambda: self.settings, self)
        self.updates = Updates(
            state, states.updates, lambda: self.settings, self._own_files, parent=self
        )
        self._faulted.connect(self.report)

    # --- life -----------------------------------------------------------------------------------

    def start(self, model: Path | None = None) -> None:
        """Start the engine, read the conversations and load a model; after the first paint."""
        self._engine.start()
        start(self._find_devices(), self.report)
        self.folders.read()
        self.conversations.read()  # before the rest: the rows have the settings of the chats
        self.last_chat.start(self.settings.last_conversation)
        self.deletions.read()
        self.drafts.load_new_chat()
        self.adapters.read()
        self.snippets.read()
        self.chat_settings.read()
        self.presets.read()  # last: the untouched new chat begins with one
        self.library.start()
        self.indexing.start()
        self.collections.read()
        self.indexed_files.forget_unnamed()
        self.network.start()
        self.tools.begin()
        self.updates.start()
        if model is not None:
            self.chat_models.use(Local(model))
        chosen = model or first_model(self.settings.last_model)
        if chosen is not None:
            self.switch.load(Local(chosen))
        else:
            expect_model(self.state, None)

    def drain(self) -> None:
        """Process the engine's queued events now, without waiting for the timer."""
        self._answers.drain()

    def close(self) -> None:
        """Stop the engine, save its last output, then close the store; may block."""
        self.shut_down()
        self.stop_engine()
        self.save()
        self._store_queue.close()

    def ask_to_quit(self) -> None:
        """Emit `may_quit` when all is saved; ask the user when saving fails or takes too long."""
        self.save()
        self.quitting.ask()

    def shut_down(self) -> None:
        """Stop all answers and downloads, and send the command that saves the cached context."""
        self.reading.stop()
        self.outbox.close()
        self.attachments.close()
        self.screenshots.close()
        self.pictures.close()
        self.titles.close()
        self.collections.close()
        self.tools.close()
        self.passage_documents.close()
        self.indexing.close()
        self.encoder.close()
        self._answers.close()
        self._answers.stop_remote()
        self.switch.drop()
        self.sessions.shut_down()
        self.library.close()
        self.network.close()
        self.gpu_support.close()
        self.updates.close()
        self._own_files.close()
        self.transfer.end()

    def stop_engine(self) -> None:
        """Stop the engine's thread; a step of `close` that may run on another thread."""
        self._engine.stop()

    def save(self) -> None:
        """Process the engine's last events; queue unsaved text and adapters for the store."""
        self._answers.drain()
        self.adapters.flush()
        self._answers.save()

    def report_soon(self, error: BaseException) -> None:
        """Call `report` on the GUI thread; may be called on any thread."""
        self._faulted.emit(error)

    def report(self, error: BaseException) -> None:
        """Show a notice about an unexpected exception in the app; the app keeps running."""
        what = tr("Something went wrong in Tokonoma.")
        remedy = tr("Nothing is lost. The log has the details.")
        self.state.set_notice("fault", Notice(what, remedy, detail=type(error).__name__))

    def close_notice(self, kind: str) -> None:
        """Close a notice; closing the question about quitting keeps the app open."""
        if kind == "quit":
            self.quitting.stay()
            restart.request(wanted=False)
        elif kind == SWITCH_NOTICE:
            self.model_use.give_up()
        self.state.set_notice(kind, None)

    def act_on_notice(self, kind: str) -> None:
        """Run the action of a notice's button."""
        if kind == "store":
            self._faults.repair()
        elif kind == "repair" and self._faults.aside is not None:
            show_in_folder(self._faults.aside)
        elif kind == "quit":
            self.quitting.quit_anyway()
        elif kind == SWITCH_NOTICE:
            self.switch.do_now()
        elif kind == DONE_NOTICE:
            self.transfer.undo()
        elif kind == ATTACHMENTS_NOTICE:
            self.collection_choices.use(self.attachments.take_large_folders())
        elif kind == SIGHT_NOTICE:
            self.sight.use_offered()
        elif kind == SCAN_NOTICE:
            self.document_pictures.use_offered()
        elif kind == FULL_NOTICE:
            self.messages.go_on_without_oldest()
        else:
            self.presets.act_on_notice(kind)

    def change_settings(self, **values: Any) -> None:
        """Change settings by name and save them; a sampling value is then the user's own."""
        self._save_settings(with_own(replace(self.settings, **values), *values))

    def reset_sampling(self, name: str) -> None:
        """Give up the user's own value of a sampling setting, and save the settings."""
        self._save_settings(without_own(self.settings, name))

    def used_sampling(self) -> dict[str, UsedValue]:
        """The sampling values of the model in use, and their origins; empty without a model."""
        path = self.state.model.path
        return {} if path is None else self.library.defaults.used_sampling(path)

    def _save_settings(self, settings: Settings) -> None:
        self.settings = settings
        self.library.set_settings(settings)
        self.network.apply()
        self.settings_changed.emit()
        self._saved_settings.save(settings)

    # --- conversations --------------------------------------------------------------------------

    def new_conversation(self, folder: int | None = None) -> None:
        """Show a new chat, in a folder; it is created in the store with its first message."""
        self.state.set_new_folder(folder)
        self.presets.begin_new_chat()

    def open_conversation(self, conversation_id: int) -> None:
        """Show a conversation of the list."""
        self.navigation.open(conversation_id)

    # --- messages -------------------------------------------------------------------------------

    def send(self, content: Content, left: Parts = ()) -> bool:
        """Send a message in the shown conversation; see `Messages.send`."""
        return self.messages.send(content, left)

    def stop(self) -> None:
        """Stop the answer of the shown conversation; its partial text stays."""
        self._answers.stop(self.state.current)

    def stop_answer(self, message_id: int) -> None:
        """Stop one of two compared answers; the other goes on."""
        self._answers.stop_answer(message_id)

    def stop_in(self, conversation_id: int) -> None:
        """Stop the answer of any conversation; its partial text stays."""
        self._answers.stop(conversation_id)

    def regenerate(
        self,
        message_id: int,
        how: AnswerAgain = AnswerAgain.SAME,
        model: ModelRef | None = None,
    ) -> None:
        """Generate another answer; see `Messages.regenerate`."""
        self.messages.regenerate(message_id, how, model)

    def regenerate_with(self, message_id: int, model: ModelRef) -> None:
        """Generate another answer with a model that the chat does not keep."""
        self.regenerate(message_id, model=model)

    def compare(self, message_id: int, left: GenerationSettings, right: GenerationSettings) -> None:
        """Answer the question of an answer, or the last question, twice at once."""
        if self.state.current is not None:
            self.chat_settings.keep_variables(self.state.current)
        self.comparisons.begin(message_id, left, right)

    def keep(self, message_id: int) -> None:
        """Make one of two compared answers the answer of the branch."""
        self.comparisons.keep(message_id)
        if self.state.current is not None:
            self._on_answer_ended(self.state.current, message_id)

    def reopen_comparison(self, message_id: int) -> None:
        """Show both answers of the comparison that ends the branch again."""
        self.comparisons.reopen(message_id)

    def edit(self, message_id: int, content: Content) -> bool:
        """Send an edited message, or keep an edited answer; see `Messages.edit`."""
        return self.messages.edit(message_id, content)

    def continue_answer(self, message_id: int) -> None:
        """Let the model go on after the last answer; new text is appended to it."""
        self._continuation.start(message_id)

    # --- the model ------------------------------------------------------------------------------

    def load_model(self, path: Path) -> None:
        """Load a model file for the shown chat, after the answers in progress."""
        self.model_use.choose(Local(path))

    def unload_model(self) -> None:
        """Unload the model, after the answers in progress."""
        self.switch.unload()

    # --- steps ----------------------------------------------------------------------------------

    def _on_used(self, used: AnswerUsage, model: str, is_here: bool) -> None:
        """A model has answered, on this computer or elsewhere."""
        self.performance.on_answered(used, model)
        if is_here:
            self.updates.on_answered(used.generated_tokens)

    def _on_reached(self, model: Remote, fault: RemoteFaultKind | None) -> None:
        self.network.connections.on_answer(model, fault)

    def _load_for_answers(self, model: ModelRef | None) -> None:
        self.model_use.load_for_answers(model)

    def _on_answer_ended(self, conversation_id: int, message_id: int) -> None:
        self._continuation.on_ended(message_id)
        self.outbox.on_answer_ended(conversation_id, message_id)  # first: it may ask the next one
        self.titles.on_answer_ended(conversation_id, message_id)

    def _refuses(self, conversation: int | None, model: ModelRef | None = None) -> bool:
        """Whether a chat cannot be answered now; a notice says why. `model` is for this answer."""
        if self.chat_settings.refuses(conversation):
            return True
        return model is None and self.chat_models.refuses(conversation)

    def _begin(self, parts: Parts) -> int:
        """Create a conversation with the settings of the new chat."""
        folder = self.state.new_folder
        conversation_id = self.conversations.begin(parts, self.state.new_chat, folder)
        self.chat_settings.change(None, NO_SETTINGS)  # last: a crash before must not lose them
        self.state.set_new_folder(None)
        self.adapters.begin(conversation_id)
        self.presets.renew()
        return conversation_id

    def _model_settings(self, model: ModelRef | None) -> Settings:
        """The settings of a model; None: of the one in use."""
        return self.library.defaults.settings_for(local_path(model or self.state.model.model))

    async def _find_devices(self) -> None:
        found = await self._engine.submit(FindDevices()).result(DevicesFound)
        self.state.set_devices(found.devices)
        self.gpu_support.look()

    async def _follow(self, event: Event) -> None:
        """Handle an event of the engine that belongs to no request."""
        self.models.on_event(event)

    def _remember_model(self, path: Path) -> None:
        if self.state.model.loaded is not None:
            self.library.defaults.remember(path, self.state.model.loaded)
        if str(path) != self.settings.last_model:
            self.change_settings(last_model=str(path))
