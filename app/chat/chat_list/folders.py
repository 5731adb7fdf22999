"""Folders of chats, and which chats are in them, pinned or archived."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.domain.chat import Conversation, Folder
from app.domain.folders import chain, in_order, moved
from app.domain.ids import new_id
from app.state.chat import Deletion, State
from app.store.writer import StoreQueue


class Folders(QObject):
    """Changes places in the state at once, and in the store afterwards."""

    moved = Signal(object)  # Deletion: what Undo puts back

    def __init__(self, state: State, store_queue: StoreQueue) -> None:
        super().__init__(state)
        self._state = state
        self._store_queue = store_queue
        self._made: set[int] = set()  # in this run, so that they may not be stored yet
        self._changes = 0  # counts the changes of the folders in the state
        self._has_read = False  # the stored folder of the new chat
        self._has_chosen = False  # the folder of the new chat was chosen before it was read
        state.new_folder_changed.connect(self._on_new_folder)

    def read(self) -> None:
        """Read the folders from the store; those not stored yet stay."""
        before = self._changes

        def found(stored: tuple[list[Folder], int | None]) -> None:
            folders, new_folder = stored
            if before != self._changes:  # changed meanwhile: the state is newer
                self.read()
                return
            known = {folder.id for folder in folders}
            unsaved = [f for f in self._state.folders if f.id in self._made and f.id not in known]
            self._state.set_folders([*folders, *unsaved])
            if not self._has_read:
                self._show_new_folder(new_folder)

        self._store_queue.read(lambda store: (store.folders(), store.new_chat_folder()), found)

    def _show_new_folder(self, stored: int | None) -> None:
        """Let the new chat begin in the folder of the run before, unless one was chosen since."""
        self._has_read = True
        if self._has_chosen:
            self._on_new_folder()
        elif self._state.folder(stored) is not None:
            self._state.set_new_folder(stored)

    def _on_new_folder(self) -> None:
        """The folder of the new chat has changed."""
        self._has_chosen = True
        if self._has_read:
            chosen = self._state.new_folder
            self._store_queue.write(lambda store: store.set_new_chat_folder(chosen))

    def write_all(self) -> None:
        """Write all folders again, after a damaged store was replaced."""
        self._save([folder for folder, _ in in_order(self._state.folders)])
        self._on_new_folder()

    def create(
        self, name: str, parent: int | None = None, conversations: Sequence[int] = ()
    ) -> int:
        """Create a folder, as the last one in `parent`, with these chats; returns its id."""
        beside = [f.position for f in self._state.folders if f.parent == parent]
        made = Folder(new_id(), name, parent, position=max(beside, default=-1.0) + 1)
        self._made.add(made.id)
        self.add([made])
        self._save([made])
        self.move(conversations, made.id)
        return made.id

    def add(self, folders: Sequence[Folder]) -> None:
        """Put folders into the state, in place of those with the same ids."""
        if folders:
            self._changes += 1
            by_id = {folder.id: folder for folder in (*self._state.folders, *folders)}
            self._state.set_folders(list(by_id.values()))

    def remove(self, folder_ids: Collection[int]) -> None:
        """Remove folders from the state, not from the store."""
        if folder_ids:
            self._changes += 1
            self._made.difference_update(folder_ids)
            self._state.set_folders([f for f in self._state.folders if f.id not in folder_ids])

    def change(self, folder: Folder) -> None:
        """Change the name, the instructions or the preset of a folder."""
        before = self._state.folder(folder.id)
        if before is None or not folder.name.strip():
            return
        name = " ".join(folder.name.split())
        after = replace(before, name=name, instructions=folder.instructions, preset=folder.preset)
        if after != before:
            self.add([after])
            self._save([after])

    def rename(self, folder_id: int, name: str) -> None:
        """Give a folder another name; an empty one changes nothing."""
        before = self._state.folder(folder_id)
        if before is not None:
            self.change(replace(before, name=name))

    def place(self, folder_id: int, parent: int | None, before: int | None = None) -> None:
        """Move a folder into another one, before one of those in it; None: to the end."""
        state = self._state
        changed = moved(state.folders, folder_id, parent, before)
        if changed:
            ids = {folder.id for folder in changed}
            was = tuple(folder for folder in state.folders if folder.id in ids)
            self.add(changed)
            self._save(changed)
            self.moved.emit(Deletion(moved_folders=was))

    def move(self, conversation_ids: Sequence[int], folder_id: int | None) -> None:
        """Move chats into a folder; None: out of all folders."""
        if folder_id is None or self._state.folder(folder_id) is not None:
            moved = [replace(c, folder=folder_id) for c in self._chosen(conversation_ids)]
            if before := self._change(moved):
                self.moved.emit(Deletion(moved=before))

    def archive(self, conversation_ids: Sequence[int], archived: bool) -> None:
        """Take chats out of the list, or put them back into it; search finds all."""
        changed = [replace(c, archived=archived) for c in self._chosen(conversation_ids)]
        before = self._change(changed)
        if before and archived:
            self.moved.emit(Deletion(moved=before, archived=True))

    def pin(self, conversation_ids: Sequence[int], pinned: bool) -> None:
        """List chats first, or no longer."""
        rows = self._chosen(conversation_ids)
        ids = tuple(row.id for row in rows if row.pinned is not pinned)
        if ids:
            self._state.change_conversations({each: {"pinned": pinned} for each in ids})
            self._store_queue.write(lambda store: store.set_pinned(ids, pinned=pinned))

    def put_back(self, conversations: Sequence[Conversation], folders: Sequence[Folder]) -> None:
        """Undo a move: chats and folders go to these places again, as far as these exist."""
        for place in folders:
            now = self._state.folder(place.id)
            around = [folder.id for folder in chain(self._state.folders, place.parent)]
            is_place = place.parent is None or around
            if now is not None and is_place and place.id not in around:
                back = replace(now, parent=place.parent, position=place.position)
                self.add([back])
                self._save([back])
        places = {c.id: c for c in conversations}
        rows = self._chosen([*places])
        known = {folder.id for folder in self._state.folders}
        self._change(
            [
                replace(
                    row,
                    folder=place.folder if (place := places[row.id]).folder in known else None,
                    archived=place.archived,
                )
                for row in rows
            ]
        )

    def _chosen(self, conversation_ids: Sequence[int]) -> list[Conversation]:
        wanted = frozenset(conversation_ids)
        return [c for c in self._state.conversations if c.id in wanted]

    def _change(self, rows: Sequence[Conversation]) -> tuple[Conversation, ...]:
        """Set the folders of rows, and whether they are archived; returns those before."""
        before = {c.id: c for c in self._chosen([row.id for row in rows])}
        changed = [row for row in rows if row != before[row.id]]
        if changed:
            self._state.change_conversations(
                {row.id: {"folder": row.folder, "archived": row.archived} for row in changed}
            )
            places = [(row.id, row.folder, row.archived) for row in changed]
            self._store_queue.write(lambda store: store.set_places(places))
        return tuple(before[row.id] for row in changed)

    def _save(self, folders: Sequence[Folder]) -> None:
        changed = tuple(folders)
        if changed:
            self._store_queue.write(lambda store: store.save_folders(changed))
