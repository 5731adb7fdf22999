"""Faults of the store: shows them as notices, and repairs a damaged file at the user's request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app.chat.answering.answers import Answers
from app.chat.chat_list.conversations import Conversations
from app.chat.chat_list.folders import Folders
from app.chat.documents.collections import Collections
from app.chat.models.adapters import Adapters
from app.chat.sending.drafts import UnsentText
from app.chat.settings.chat_settings import ChatSettingsController
from app.chat.settings.presets import Presets
from app.chat.settings.snippets import Snippets
from app.state.chat import Notice, State
from app.store.schema import NewerStore
from app.store.store import DamagedStore, StoreError
from app.store.writer import StoreQueue
from app.system.translation import tr, trn

if TYPE_CHECKING:
    from app.store.salvage import Salvaged

NOTICE = "store"  # kind of the notice about a fault
NEWER_NOTICE = "newer store"  # of the one whose action is to export


class StoreFaults:
    """Shows the store's fault until it is solved."""

    def __init__(
        self,
        state: State,
        store_queue: StoreQueue,
        answers: Answers,
        adapters: Adapters,
        chat_settings: ChatSettingsController,
        conversations: Conversations,
        folders: Folders,
        drafts: UnsentText,
        snippets: Snippets,
        presets: Presets,
        collections: Collections,
    ) -> None:
        self._state, self._store_queue = state, store_queue
        self._answers, self._adapters, self._settings = answers, adapters, chat_settings
        self._conversations, self._folders, self._drafts = conversations, folders, drafts
        self._snippets, self._presets, self._collections = snippets, presets, collections
        self.aside: Path | None = None  # the damaged file that is kept
        store_queue.fault_changed.connect(self._on_fault)

    def repair(self) -> None:
        """Move the damaged file aside, and begin a new one with what can be read of it."""
        self._store_queue.repair(self._on_repaired)

    def _on_repaired(self, aside: Path, found: Salvaged | None) -> None:
        if found is None:
            sentence = tr("Nothing in the damaged file could be read. A new one was started.")
        else:
            sentence = tr(
                "{chats} with {messages} were recovered.",
                chats=trn("{count} chat", "{count} chats", found.conversations),
                messages=trn("{count} message", "{count} messages", found.messages),
            )
        self._answers.save()
        self._folders.write_all()
        for conversation in self._state.conversations:
            if branch := self._state.branches.get(conversation.id):
                compared = self._state.compared
                others = [compared[message.id] for message in branch if message.id in compared]
                self._store_queue.rewrite(conversation, branch, others)
        rows = self._state.conversations  # a row that was lost is there again without these
        self._store_queue.write(lambda store: store.update_conversations(rows))
        self._adapters.write_all()
        self._settings.write_all()
        self._drafts.write_all()
        self._snippets.write_all()
        self._presets.write_all()
        self._collections.write_all()
        remedy = tr("The damaged file is kept as {file}.", file=aside)
        self._state.set_notice("repair", Notice(sentence, remedy, tr("Show in folder")))
        self.aside = aside
        self._folders.read()
        self._conversations.read()

    def _on_fault(self, error: StoreError | None) -> None:
        if error is None:
            for kind in (NOTICE, NEWER_NOTICE, "quit"):
                self._state.set_notice(kind, None)
            self._folders.read()
            self._conversations.read()
            self._drafts.load_new_chat()
            self._snippets.read()
            return
        if isinstance(error, NewerStore):
            action = tr("Export all chats")
            self._state.set_notice(NEWER_NOTICE, Notice(str(error), error.remedy, action))
            return
        action = tr("Move it aside") if isinstance(error, DamagedStore) else ""
        self._state.set_notice(NOTICE, Notice(str(error), error.remedy, action))
