"""PageStore: saved sequences and their pages in a folder, within a budget of disk space.

A save writes only the pages that are not there yet, whichever conversation wrote them, then the
sequence file that names them. Pages are found by a hash of everything they depend on and verified
when they are read, so a file that is missing, damaged or swapped costs a prefill and never gives
wrong keys and values. Files may be deleted at any time. This module does not import torch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import RequestError, SnapshotError
from engine.machine import disk_files
from engine.state.disk import cleanup, page_file, sequence_file
from engine.state.disk.atomic import Checkpoint, folder_lock, no_checkpoint
from engine.state.disk.cleanup import RemovedFiles, Sweep
from engine.state.disk.page_file import (
    PAGE_TOKENS,
    Page,
    PageSource,
    SavedImage,
    StateKey,
    pages_of,
)
from engine.state.disk.sequence_file import SavedSequence
from kernels.states.layer_state import AT_END, needed_pages

log = logging.getLogger(__name__)

_EVICTED = {"written": "on eviction"}  # metadata of sequences that no Save wrote
_MEGABYTE = 1e6
_SAVE_SECONDS = 10.0  # wait for another process's cleanup before a save
_CLEANUP_SECONDS = 10.0  # wait for the saves of other processes before a cleanup


def check_budget(size_bytes: int, budget_bytes: int) -> None:
    """Raise RequestError for a sequence larger than the budget of all together.

    It is not written at all: it would evict every other one, and the next save would evict it.
    """
    if size_bytes > budget_bytes:
        raise RequestError(
            f"The cached context of this conversation takes {size_bytes / _MEGABYTE:,.0f} MB, and "
            f"the disk space for cached conversations is {budget_bytes / _MEGABYTE:,.0f} MB.",
            "Allow more disk space in the settings.",
        )


def needed_parts(windows: Sequence[int], tokens: int) -> list[tuple[bool, ...]]:
    """For each page of a sequence, the groups whose parts the positions from `tokens` on read.

    `windows` of each group in tokens; 0: unlimited; AT_END: only the state after the last token.
    """
    needed = [needed_pages(window, tokens) for window in windows]
    return [tuple(page in some for some in needed) for page in range(-(-tokens // PAGE_TOKENS))]


@dataclass(frozen=True, slots=True)
class SaveResult:
    """What a save wrote and deleted."""

    path: Path  # of the sequence file
    bytes_written: int  # new pages and the sequence file
    total_bytes: int  # of the whole store afterwards
    evicted: int  # sequences deleted to meet the budget


@dataclass(frozen=True, slots=True)
class PageRead:
    """A page to be read into memory."""

    page: Page
    targets: Sequence[memoryview | None]  # of each group, with the size of its part; None: skip


class PageStore:
    """The saved sequences of one folder; thread-safe, and safe beside other processes."""

    def __init__(self, folder: Path) -> None:
        """Opening deletes the files of older versions and what crashed writers left."""
        self._folder = folder
        self._pages = folder / cleanup.PAGES
        self._lock = threading.Lock()
        self._known: dict[str, SavedSequence] = {}
        self.removed: RemovedFiles = cleanup.remove_old_versions(folder)
        self.collect(0.0)

    # --- finding --------------------------------------------------------------------------------

    def sequences(self) -> list[SavedSequence]:
        """Every saved sequence, most recently used first; unchanged files are not read again.

        Those with a `fault` are damaged or of another version.
        """
        with self._lock:
            found = sequence_file.read_all(self._folder, self._known)
            self._known = {saved.path.name: saved for saved in found}
        return found

    def usable_prefix(
        self,
        saved: SavedSequence,
        windows: Sequence[int],
        limit: int | None = None,
        in_memory: Sequence[Sequence[object]] = (),
    ) -> int:
        """The most leading tokens, up to `limit`, whose needed parts are on the disk or in memory.

        `windows` as in `needed_parts`. `in_memory` has for each leading page its parts, or None.
        Files are found by their size; `read_pages` verifies them.
        """
        tokens = len(saved.token_bytes) // 4
        end = tokens if limit is None else max(min(limit, tokens), 0)
        is_there: dict[tuple[int, int], bool] = {}

        def exists(page: int, group: int) -> bool:
            if page < len(in_memory) and in_memory[page][group] is not None:
                return True
            if (page, group) not in is_there:
                size = saved.key.page_bytes[group]
                is_there[page, group] = page_file.exists(
                    self._pages, saved.pages[page], group, size
                )
            return is_there[page, group]

        whole = [group for group, window in enumerate(windows) if not window]
        for page in range(-(-end // PAGE_TOKENS)):
            if not all(exists(page, group) for group in whole):
                end = page * PAGE_TOKENS
                break
        while end:
            last = (end - 1) // PAGE_TOKENS
            if all(
                exists(page, group)
                for page, groups in enumerate(needed_parts(windows, end))
                for group, is_needed in enumerate(groups)
                if is_needed and group not in whole
            ) and (AT_END not in windows or end in (tokens, (last + 1) * PAGE_TOKENS)):
                break
            end = last * PAGE_TOKENS
        return end

    # --- reading --------------------------------------------------------------------------------

    def read_page(
        self,
        page: Page,
        targets: Sequence[memoryview | None],
        checkpoint: Checkpoint = no_checkpoint,
    ) -> None:
        """Read and verify the parts of a page for which there is a target.

        Raises SnapshotError, Damaged for wrong contents (the file is then deleted), and what
        `checkpoint` raises. The targets are then undefined.
        """
        for group, target in enumerate(targets):
            if target is not None:
                page_file.read(self._pages, page, group, target, checkpoint)

    def read_pages(
        self, reads: Sequence[PageRead], checkpoint: Checkpoint = no_checkpoint
    ) -> tuple[int, SnapshotError | None]:
        """Read pages in order; returns how many leading ones are good, and why no more.

        The targets of all others are then undefined. Raises what `checkpoint` raises. One thread:
        a second one for hashing or for every other page gained nothing on two virtual processors.
        """
        for done, read in enumerate(reads):
            try:
                self.read_page(read.page, read.targets, checkpoint)
            except SnapshotError as error:
                return done, error
        return len(reads), None

    # --- saving ---------------------------------------------------------------------------------

    def save(
        self,
        conversation: str,
        key: StateKey,
        metadata: Mapping[str, str],
        tokens: Sequence[int],
        pages: Sequence[PageSource],
        resume: Mapping[str, str],
        *,
        images: Sequence[SavedImage] = (),
        budget_bytes: int,
        checkpoint: Checkpoint = no_checkpoint,
    ) -> SaveResult:
        """Write what is not on the disk yet of a sequence of at least one token, then clean up.

        Negative ids are rows of the `images`, see `page_file.pages_of`.
        `pages` has one source for each 256 tokens, and one for the rest; each is released as soon
        as it is written, and all when this returns or raises. The conversation's sequences which
        are a prefix of this one are deleted, then the least recently used of all until the total
        is at most `budget_bytes`. Raises OSError and what `checkpoint` raises.
        """
        with self._saving(pages):
            token_bytes = sequence_file.encoded_ids(tokens)
            named = pages_of(key, token_bytes, images)
            assert named, "nothing to save"
            assert len(named) == len(pages), "one source for each page"
            self._pages.mkdir(parents=True, exist_ok=True)
            with folder_lock(
                self._pages, exclusive=False, seconds=_SAVE_SECONDS, checkpoint=checkpoint
            ):  # without it, at worst another process deletes a page that it takes for unreferenced
                held = [_bits(source.held) for source in pages]
                written = self._write_pages(key, zip(named, pages, strict=True), checkpoint)
                path = self._folder / sequence_file.file_name(conversation, named)
                written += sequence_file.write(
                    path, key, metadata, token_bytes, held, resume, images
                )
        self._delete_superseded(conversation, path)
        total, evicted = self._clean(budget_bytes, path, checkpoint)
        return SaveResult(path, written, total, evicted)

    def add_evicted(
        self,
        conversation: str,
        key: StateKey,
        metadata: Mapping[str, str],
        token_bytes: bytes,
        pages: Mapping[int, PageSource],
        *,
        images: Sequence[SavedImage] = (),
        stamp: str,
        windows: Sequence[int],
        budget_bytes: int,
        checkpoint: Checkpoint = no_checkpoint,
    ) -> int:
        """Write pages of a sequence by index, the last one among them; returns the bytes written.

        Memory has the others. They belong to the conversation: nothing is written if its
        `deletion_stamp` is not `stamp` any more, nor for a sequence larger than the budget. All
        sources are released when this returns or raises OSError or what `checkpoint` raises.
        """
        path: Path | None = None
        with self._saving(pages.values()):
            named = pages_of(key, token_bytes, images)
            needed = needed_parts(windows, len(token_bytes) // 4)
            if _size(key, named, needed) > budget_bytes:
                return 0
            with folder_lock(
                self._pages, exclusive=False, seconds=_SAVE_SECONDS, checkpoint=checkpoint
            ):
                if self.deletion_stamp(conversation) != stamp:
                    return 0
                own = [saved for saved in self.sequences() if saved.belongs_to(conversation)]
                last = len(named) - 1
                # Its last page may be the beginning of one that is on the disk.
                is_part = AT_END not in windows and any(
                    saved.key == key
                    and saved.begins_with(token_bytes, images)
                    and self._has(saved, last, pages[last].held)
                    for saved in own
                )
                wanted = sorted(set(pages) - ({last} if is_part else set()))
                pairs = ((named[index], pages[index]) for index in wanted)
                written = self._write_pages(key, pairs, checkpoint)
                if not is_part and all(saved.pages[last : last + 1] != named[-1:] for saved in own):
                    path = self._folder / sequence_file.file_name(conversation, named)
                    facts = {**metadata, **_EVICTED}
                    held = [_bits(parts) for parts in needed]
                    written += sequence_file.write(path, key, facts, token_bytes, held, {}, images)
            if path is not None and self.deletion_stamp(conversation) != stamp:
                cleanup.remove(path)  # the deletion did not wait for the lock
                self.collect(0.0)
                return 0
        if path is not None:
            self._delete_superseded(conversation, path, evicted_only=True)
        if written:
            self._clean(budget_bytes, None, checkpoint)
        return written

    def deletions(self) -> Mapping[str, str]:
        """The recorded deletions of conversations, for `cleanup.deletion_stamp`."""
        return cleanup.deletions(self._folder)

    def deletion_stamp(self, conversation: str) -> str:
        """See `cleanup.deletion_stamp`."""
        return cleanup.deletion_stamp(self.deletions(), conversation)

    def make_folder(self) -> None:
        """Create the folder, so that deletions are recorded there. Raises OSError."""
        self._pages.mkdir(parents=True, exist_ok=True)

    def touch(self, saved: SavedSequence) -> None:
        """Mark a sequence as used now."""
        sequence_file.touch(saved.path)

    def delete(self, saved: SavedSequence) -> bool:
        """Delete a sequence file; a failure is logged and returns False. `collect` frees pages."""
        return cleanup.remove(saved.path) is not None

    def collect(
        self, seconds: float = _CLEANUP_SECONDS, checkpoint: Checkpoint = no_checkpoint
    ) -> int:
        """Delete pages without a sequence and files of crashed writers; returns the bytes freed.

        Does nothing when other threads or processes save for longer than `seconds`.
        """
        if not self._pages.is_dir():
            return 0
        with folder_lock(
            self._pages, exclusive=True, seconds=seconds, checkpoint=checkpoint
        ) as locked:
            if not locked:
                log.info("saved pages are not cleaned up: another process is saving")
                return 0
            return Sweep(self._folder, self.sequences()).remove_unreferenced(checkpoint)

    @contextmanager
    def _saving(self, sources: Collection[PageSource]) -> Iterator[None]:
        """Release all sources at the end; after an error, free what was written and is not named."""
        try:
            yield
        except BaseException:
            self.collect(0.0)
            raise
        finally:
            for source in sources:
                source.release()

    def _has(self, saved: SavedSequence, page: int, groups: Sequence[bool]) -> bool:
        """Whether these groups' parts of a page of a sequence are on the disk."""
        return all(
            page_file.exists(self._pages, saved.pages[page], group, saved.key.page_bytes[group])
            for group, held in enumerate(groups)
            if held
        )

    def _write_pages(
        self, key: StateKey, pages: Iterable[tuple[Page, PageSource]], checkpoint: Checkpoint
    ) -> int:
        """Write what is not on the disk of these pages, and release them; returns the bytes."""
        written = 0
        for page, source in pages:
            checkpoint()
            written += self._write_page(key, page, source, checkpoint)
            source.release()
        if written:
            with suppress(OSError):
                disk_files.sync_folder(self._pages)
        return written

    def _write_page(
        self, key: StateKey, page: Page, source: PageSource, checkpoint: Checkpoint
    ) -> int:
        """Write the parts that are not on the disk; returns the bytes written."""
        missing = [
            group
            for group, (size, held) in enumerate(zip(key.page_bytes, source.held, strict=True))
            if held and not page_file.exists(self._pages, page, group, size)
        ]
        if not missing:
            return 0
        parts, written = source.parts(), 0
        for group in missing:
            part = parts[group]
            assert part is not None, f"group {group} is held"
            assert part.nbytes == key.page_bytes[group], f"group {group} has {part.nbytes} bytes"
            written += page_file.write(self._pages, page, group, part, checkpoint)
        return written

    def _delete_superseded(
        self, conversation: str, path: Path, *, evicted_only: bool = False
    ) -> None:
        """Delete the conversation's sequences that are a prefix of the one at `path`.

        With `evicted_only` not those that were saved: these are whole, and this one may not be.
        """
        found = self.sequences()
        new = next((saved for saved in found if saved.path == path), None)
        for saved in found:
            if new is None or not saved.belongs_to(conversation) or not _is_prefix(saved, new):
                continue
            if not evicted_only or _EVICTED.items() <= saved.metadata.items():
                self.delete(saved)

    def _clean(
        self, budget_bytes: int, keep: Path | None, checkpoint: Checkpoint
    ) -> tuple[int, int]:
        """Delete unreferenced pages and evict; returns the total size and the evicted number."""
        with folder_lock(
            self._pages, exclusive=True, seconds=_CLEANUP_SECONDS, checkpoint=checkpoint
        ) as locked:
            if not locked:
                log.info("saved pages are not cleaned up: another process is saving")
                return cleanup.total_size(self._folder), 0
            sweep = Sweep(self._folder, self.sequences())
            sweep.remove_unreferenced(checkpoint)
            evicted = sweep.evict(budget_bytes, keep, checkpoint)
            return sweep.total_bytes, evicted


def _bits(groups: Sequence[bool]) -> int:
    """Groups of layers as the bits of a number."""
    return sum(1 << group for group, has in enumerate(groups) if has)


def _size(key: StateKey, pages: Sequence[Page], needed: Sequence[Sequence[bool]]) -> int:
    """Bytes of the files of these parts."""
    return sum(
        page_file.file_size(page, size)
        for page, parts in zip(pages, needed, strict=True)
        for size, is_needed in zip(key.page_bytes, parts, strict=True)
        if is_needed
    )


def _is_prefix(saved: SavedSequence, new: SavedSequence) -> bool:
    """Whether a sequence is a shorter part of `new`, with the same state key."""
    shorter = len(saved.token_bytes) < len(new.token_bytes)
    same = saved.fault is None and saved.key == new.key
    return shorter and same and new.begins_with(saved.token_bytes, saved.images)
