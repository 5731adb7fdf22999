"""What the built-in tools need of the app, asked for on the tools' thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from app.chat.documents.file_texts import TextExtractor
from app.chat.documents.retrieval import Retrieval
from app.chat.tools.thread import ToolThread
from app.documents.pictures import PictureLook
from app.documents.source import ExtractionError
from app.domain.documents import Passage, SearchFault
from app.domain.parts import search_text
from app.domain.tools import ToolError
from app.store.store import Store
from app.store.writer import StoreQueue
from app.system.text_search import first_occurrence, query_terms
from app.tools.services import Found
from engine import disk_files

_BEFORE, _LENGTH = 200, 800  # characters of a message before the first word, and of all
_MOST_KEPT = 200  # replaced files; the oldest are deleted


class ToolServices:
    """`app.tools.services.Services` of this app."""

    def __init__(
        self,
        thread: ToolThread,
        retrieval: Retrieval,
        store_queue: StoreQueue,
        extractor: Callable[[], TextExtractor],
    ) -> None:
        """`extractor` makes the extractor of texts when the first document is read."""
        self._thread, self._retrieval, self._store_queue = thread, retrieval, store_queue
        self._make = extractor
        self._extractor: TextExtractor | None = None
        self._lock = threading.Lock()
        self._kept = store_queue.path.with_name("replaced files")

    async def passages(self, conversation: int, query: str, count: int) -> Sequence[Found]:
        """The passages of a chat's documents that fit a query best."""
        ask = partial(self._retrieval.look_up, conversation, query, count)
        found: Sequence[Passage] | SearchFault | None = await self._thread.ask(ask)
        if found is None:
            raise ToolError("This chat has no documents that can be searched.")
        if isinstance(found, SearchFault):
            raise ToolError("The documents of this chat cannot be searched now.")
        return [
            Found(
                each.name, each.text, f"{each.unit.value} {each.page}".strip() if each.page else ""
            )
            for each in found
        ]

    async def chats(self, query: str, count: int) -> Sequence[Found]:
        """The messages of all chats that fit a query best: one of each chat."""

        def read(store: Store) -> list[Found]:
            chats = store.conversations(query)[:count]
            hits = store.hits(query, [chat.id for chat in chats])
            return [
                Found(
                    chat.title,
                    _around(search_text(store.message(hit.message).parts), query)
                    if (hit := hits.get(chat.id))
                    else "",
                    time.strftime("%Y-%m-%d", time.localtime(chat.updated)),
                )
                for chat in chats
            ]

        return await self._thread.ask(lambda answer: self._store_queue.read(read, answer))

    async def text_of(self, path: Path, name: str) -> str:
        """The text of a document; raises ToolError."""
        return await asyncio.to_thread(self._extract, path, name)

    def look(self, path: Path, cancelled: Callable[[], bool]) -> PictureLook:
        """The size of the picture in a file; blocks. Raises ExtractionError."""
        return self._reader.look(path, cancelled)

    async def keep(self, path: Path, content: bytes) -> str:
        """Keep what a file had before a tool replaced it; raises OSError."""
        return await asyncio.to_thread(self._keep, path, content)

    def close(self) -> None:
        """End the child processes."""
        if self._extractor is not None:
            self._extractor.close()

    # --- steps ----------------------------------------------------------------------------------

    @property
    def _reader(self) -> TextExtractor:
        with self._lock:
            if self._extractor is None:
                self._extractor = self._make()
            return self._extractor

    def _extract(self, path: Path, name: str) -> str:
        try:
            return self._reader.extract(path, name).text
        except ExtractionError as error:
            raise ToolError(f"The text of {name!r} cannot be read: {error.fault.value}.") from None

    def _keep(self, path: Path, content: bytes) -> str:
        self._kept.mkdir(mode=0o700, exist_ok=True)
        made = self._kept / f"{time.time_ns() // 1_000_000}-{path.name}"
        disk_files.write(made, [content])
        for old in sorted(self._kept.iterdir())[:-_MOST_KEPT]:
            disk_files.delete(old)
        return f"the folder of replaced files as {made.name}"


def _around(text: str, query: str) -> str:
    """The piece of a text around the first word of a query."""
    first = first_occurrence(text, query_terms(query))
    begin = max(first - _BEFORE, 0)
    return text[begin : begin + _LENGTH]
