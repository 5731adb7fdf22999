"""Attached files in the document index: there while only their passages are read, gone with their
last chat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from PySide6.QtCore import QObject, QTimer

from app.chat.documents.indexing import DocumentText, Indexing, Offered
from app.domain.documents import DocumentKind, Reads
from app.domain.parts import FilePart
from app.domain.passages import document_key
from app.state.attachments import AttachmentsState, Place
from app.state.chat import State
from app.store.store import Store
from app.store.writer import StoreQueue

_PURGED_MILLISECONDS = 1_000  # from a change of the trash until what nothing names is forgotten


class IndexedFiles(QObject):
    """Keeps the index of attached files up to date."""

    def __init__(
        self,
        state: State,
        attachments: AttachmentsState,
        indexing: Indexing,
        store_queue: StoreQueue,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._state, self._attachments = state, attachments
        self._indexing, self._store_queue = indexing, store_queue
        self._wanted = set[tuple[str, str]]()  # in this run
        self.others: Callable[[], set[str] | None] = set  # keys of others; None: not known yet
        indexing.sources.append(self._offer)
        indexing.lost.connect(self._wanted.clear)
        attachments.changed.connect(self._on_attached)
        self._purged = QTimer(self, singleShot=True, interval=_PURGED_MILLISECONDS)
        self._purged.timeout.connect(self.forget_unnamed)
        state.trash_changed.connect(self._purged.start)

    def forget_unnamed(self) -> None:
        """Forget the documents that neither the store names nor is attached to an unsent message."""

        def named(names: set[str]) -> None:
            if (others := self.others()) is not None:  # else it is called again
                attached = {document_key(part) for part in self._parts()}
                self._indexing.keep_only(names | attached | others)

        if self._indexing.is_used:
            self._store_queue.read(Store.named_blobs, named)

    def _on_attached(self, place: Place) -> None:
        """Index the attached files of which only passages will be read."""
        for each in self._attachments.of(place):
            part = each.file
            if part is not None and part.reads is Reads.PASSAGES and part.text:
                key, found = document_key(part), _offered(part)
                if (key, found.version) not in self._wanted:
                    self._wanted.add((key, found.version))
                    self._indexing.want(key, found.text, found.version)

    def _offer(self, keys: Collection[str]) -> dict[str, Offered]:
        """The texts of attached files."""
        wanted = set(keys)
        parts = ((document_key(part), part) for part in self._parts() if part.text)
        return {key: _offered(part) for key, part in parts if key in wanted}

    def _parts(self) -> Iterator[FilePart]:
        """The files of all messages that are read, and of those that are not sent."""
        for branch in self._state.branches.values():
            for message in branch:
                yield from (part for part in message.parts if isinstance(part, FilePart))
        for place in self._attachments.places():
            yield from (each.file for each in self._attachments.of(place) if each.file is not None)


def _offered(part: FilePart) -> Offered:
    kind = next((each for each in DocumentKind if each == part.kind), DocumentKind.TEXT)
    version = f"{len(part.text)} {len(part.pages)}"  # the places that are found must be in this one
    return Offered(DocumentText(part.text, part.pages, kind), version)
