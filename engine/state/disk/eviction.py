"""Eviction to disk: pages at the end of a conversation are written before they leave memory.

An evicted page leaves the budget of the page pool at once and is kept beside it until a background
thread has written it, so that eviction never waits for the disk. Only so many bytes are kept: when
the disk is slower, full, or fails, pages are dropped as if there were no disk. A page is written
for the conversation whose text it belongs to, and deleted with it; others are dropped.

Deletions of conversations are read on that thread too. The engine thread may know an old state of
them: then a page is dropped that could have been written, never the other way round.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from engine.adapters.stack import Stack
from engine.errors import Cancelled
from engine.state.disk.cleanup import deletion_stamp
from engine.state.disk.page_file import PAGE_TOKENS, SavedImage, StateKey
from engine.state.disk.page_memory import HeldPage
from engine.state.disk.restore import MIN_GAIN
from engine.state.disk.saver import Saver
from engine.state.disk.sequence_file import decoded_ids, encoded_ids
from engine.state.disk.store import PageStore
from engine.state.pages import PagePool
from engine.state.prefix_tree import Node

log = logging.getLogger(__name__)

_MOST_TEXTS = 64  # whose conversation is known
_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Owned:
    """A text of a conversation."""

    request: int
    conversation: str
    stack: Stack
    token_bytes: bytes
    stamp: str  # of the conversation's last deletion, when the text was processed


@dataclass(frozen=True, slots=True)
class _Evicted:
    """A page to be written."""

    owner: _Owned
    token_bytes: bytes  # of the text up to the end of the page
    page: HeldPage

    @property
    def index(self) -> int:
        """Number of the page in the text."""
        return (len(self.token_bytes) // _TOKEN_BYTES - 1) // PAGE_TOKENS


class EvictedPages:
    """Pages on their way from the prefix tree to the disk; used by the engine thread.

    Nothing is written before `set_budget` was called with a budget.
    """

    def __init__(
        self,
        store: PageStore,
        saver: Saver,
        pool: PagePool,
        *,
        identify: Callable[[Stack], StateKey],
        describe: Callable[[Stack], Mapping[str, str]],
        to_saved: Callable[[list[int]], tuple[list[int], tuple[SavedImage, ...]]],
    ) -> None:
        """`identify` and `describe` return key and metadata of pages, `to_saved` the ids and images
        of a text as files have them; called on the thread.
        """
        self._store = store
        self._saver = saver
        self._pool = pool
        self._identify, self._describe, self._to_saved = identify, describe, to_saved
        self._budget_bytes = 0
        self._texts: dict[tuple[int, bytes], _Owned] = {}  # most recently used last
        self._lock = threading.Lock()
        self._queue: list[_Evicted] = []
        self._writing: list[_Evicted] = []
        self._dropping = False  # the last evicted page was dropped: that is logged once
        self._deletions = store.deletions()  # as last read
        self._is_reading = False  # the thread will read them
        self.written_pages = 0
        self.dropped_pages = 0

    def set_budget(self, budget_bytes: int) -> None:
        """Limit the files of all conversations together; 0: write nothing, from now on."""
        self._budget_bytes = budget_bytes
        if budget_bytes <= 0:
            self.drop()
        else:
            self._read_deletions()

    def note(self, request: int, conversation: str, stack: Stack, tokens: Sequence[int]) -> None:
        """A text is being processed for a conversation; "" if it has no name yet."""
        token_bytes = encoded_ids(tokens)
        stamp = deletion_stamp(self._deletions, conversation)
        for key in [key for key in self._texts if key[0] == request]:
            if token_bytes.startswith(key[1]):
                del self._texts[key]
        self._texts[request, token_bytes] = _Owned(request, conversation, stack, token_bytes, stamp)
        while len(self._texts) > _MOST_TEXTS:
            del self._texts[next(iter(self._texts))]
        self._read_deletions()

    def name(self, request: int, conversation: str) -> None:
        """A conversation that had no name when it sent this request has one now."""
        stamp = deletion_stamp(self._deletions, conversation)
        for key, one in list(self._texts.items()):
            if one.request == request and not one.conversation:
                self._texts[key] = _Owned(request, conversation, one.stack, one.token_bytes, stamp)

    def take(self, stack: str, node: Node) -> None:
        """Keep an evicted page until it is written, if it can be; see `PrefixTree.on_evict`."""
        if self._budget_bytes <= 0:
            return
        token_bytes = encoded_ids(node.all_tokens())
        owner = self._owner(stack, token_bytes)
        if owner is None:
            return
        if not self._pool.lend([page for page in node.pages if page is not None]):
            self._drop_one("the disk is too slow")
            return
        evicted = _Evicted(owner, token_bytes, HeldPage(self._pool, tuple(node.pages)))
        with self._lock:
            self._queue.append(evicted)
        try:
            self._saver.run_later(self._write)
        except (RuntimeError, MemoryError) as error:
            self.drop()
            self._drop_one(str(error))

    def has(self, stack: str, tokens: Sequence[int], cached: int) -> bool:
        """Whether a page that is still being written continues the first `cached` tokens."""
        token_bytes = encoded_ids(tokens)

        def continues(one: _Evicted) -> bool:
            end = (max(one.index * PAGE_TOKENS, cached) + MIN_GAIN) * _TOKEN_BYTES
            is_new = len(one.token_bytes) > cached * _TOKEN_BYTES
            return is_new and token_bytes.startswith(one.token_bytes[:end])

        with self._lock:
            return any(
                one.owner.stack.key == stack and continues(one)
                for one in (*self._queue, *self._writing)
            )

    def drop(self) -> None:
        """Give up the pages that are not written yet; one that is being written is finished."""
        with self._lock:
            dropped, self._queue = self._queue, []
        for one in dropped:
            one.page.release()

    def _owner(self, stack: str, token_bytes: bytes) -> _Owned | None:
        """The last conversation that has this text and was not deleted since."""
        for one in reversed(self._texts.values()):
            if (
                one.conversation
                and one.stack.key == stack
                and one.token_bytes.startswith(token_bytes)
                and deletion_stamp(self._deletions, one.conversation) == one.stamp
            ):
                return one
        return None

    def _drop_one(self, reason: str) -> None:
        self.dropped_pages += 1
        if not self._dropping:
            log.info("evicted pages are not written: %s", reason)
        self._dropping = True

    def _read_deletions(self) -> None:
        """Read them again on the writer's thread, for the texts that are noted next."""
        if self._budget_bytes <= 0 or self._is_reading:
            return
        self._is_reading = True
        try:
            self._saver.run_later(self._update_deletions)
        except (RuntimeError, MemoryError):
            self._is_reading = False

    # --- the writer's thread --------------------------------------------------------------------

    def _update_deletions(self) -> None:
        self._is_reading = False  # before they are read: what is asked for now comes later
        with suppress(OSError):  # reported when a page is written
            self._store.make_folder()  # deletions are recorded there
        self._deletions = self._store.deletions()

    def _write(self) -> None:
        """Write the pages that belong to the text evicted first; nothing if there are none."""
        with self._lock:
            if not self._queue:
                return
            first = max(
                (one for one in self._queue if one.owner is self._queue[0].owner),
                key=lambda one: len(one.token_bytes),
            )
            text, batch, others = first.token_bytes, list[_Evicted](), list[_Evicted]()
            for one in self._queue:
                is_part = one.owner is first.owner and _has_page(text, one.token_bytes)
                (batch if is_part else others).append(one)
            self._queue = others
            self._writing = batch
        try:
            self._write_pages(first.owner, text, {one.index: one.page for one in batch})
        except Cancelled:
            pass
        except BaseException as error:  # noqa: BLE001  a page that is lost is only read again
            self._drop_one(f"{type(error).__name__}: {error}")
        else:
            self._dropping = False
            self.written_pages += len(batch)
        finally:
            for one in batch:
                one.page.release()
            with self._lock:
                self._writing = []

    def _write_pages(
        self, owner: _Owned, token_bytes: bytes, pages: Mapping[int, HeldPage]
    ) -> None:
        def checkpoint() -> None:
            if self._budget_bytes <= 0:  # switched off meanwhile
                raise Cancelled

        checkpoint()
        ids, images = self._to_saved(decoded_ids(token_bytes))
        self._store.add_evicted(
            owner.conversation,
            self._identify(owner.stack),
            self._describe(owner.stack),
            encoded_ids(ids),
            pages,
            images=images,
            stamp=owner.stamp,
            windows=self._pool.layout.windows,
            budget_bytes=self._budget_bytes,
            checkpoint=checkpoint,
        )


def _has_page(text: bytes, token_bytes: bytes) -> bool:
    """Whether the last page of a text is one of `text` too: a shorter last page is another one."""
    whole = len(token_bytes) % (PAGE_TOKENS * _TOKEN_BYTES) == 0
    return text == token_bytes or (whole and text.startswith(token_bytes))
