"""Attachments: files of messages that are not sent, from their path to their text.

An attachment is shown at once; a background thread reads the files one after another. Every
change is written to the draft, so a crash loses no file: its text is read again after the start.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path

from PySide6.QtCore import QObject

from app.chat.documents.file_texts import FileTexts, ReadFile, TextExtractor
from app.chat.sending.drafts import UnsentText
from app.documents.source import ExtractionError, ExtractionFault
from app.domain.documents import Reads
from app.domain.parts import (
    FileOrImage,
    FilePart,
    ImagePart,
    Parts,
    files,
    files_and_images,
    without_files_and_images,
)
from app.domain.table_marks import has_table
from app.state.attachments import (
    Attachment,
    AttachmentPhase,
    AttachmentsState,
    Editing,
    KnownFile,
    Place,
)
from app.state.chat import Notice, State
from app.state.document_faults import fault_sentence
from app.store.blobs import Blobs
from app.store.schema import StoreError
from app.store.writer import StoreQueue
from app.system.translation import listed, number, tr, trn
from app.system.worker import BackgroundWorker
from engine import Detail

NOTICE = "attachments"  # kind of the notice about files that cannot be attached
MOST_RECENT = 50  # files of other chats that are offered by name
MOST_FILES = 25  # of folders, in one message
MOST_AT_ONCE = 100  # files and folders
_MOST_COUNTED = 10_000  # files of a folder
_log = logging.getLogger(__name__)
# Returns the bytes of a picture's file; called on the worker's thread, with a function that says
# whether the picture was removed meanwhile. Raises ExtractionError.
Content = Callable[[FileTexts, Callable[[], bool]], bytes]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of reading a file."""

    read: ReadFile | None = None
    fault: str = ""
    remedy: str = ""
    unknown: bool = False  # it is of a kind that cannot be read


@dataclass(eq=False, slots=True)
class _Folder:
    """The files of a folder that are being read."""

    name: str
    left: set[int] = field(default_factory=set[int])  # ids
    skipped: list[str] = field(default_factory=list[str])  # names of those without a text


class Attachments:
    """Attaches, reads and removes files and pictures; every intent returns at once."""

    def __init__(
        self,
        state: State,
        shown: AttachmentsState,
        store_queue: StoreQueue,
        drafts: Callable[[], UnsentText],
        began: Callable[[], None],
        user_files: BackgroundWorker,
        parent: QObject,
        extractor: Callable[[], TextExtractor] | None = None,
    ) -> None:
        """`began` is called when files are attached. `user_files` is the worker for short looks at
        the user's files. `extractor` makes what extracts texts; None: that of `app.documents`.
        """
        self._state, self._shown, self._drafts = state, shown, drafts
        self.state = shown
        self._began, self._user_files = began, user_files
        self._worker = BackgroundWorker("documents", parent)
        self._store_queue = store_queue
        blobs = Blobs(store_queue.path)
        self._texts = FileTexts(blobs, extractor or default_extractor)
        self._number = count(1).__next__
        self._cancels: dict[int, threading.Event] = {}  # of the files that are being read
        self._contents: dict[int, Content] = {}  # of the pictures whose bytes are not kept yet
        self._folders: dict[int, _Folder] = {}  # by the files of folders
        self._large: dict[Path, int] = {}  # files of the folders that were refused last
        self._editing = set[int]()  # messages whose files are at the place of their editor
        state.conversation_changed.connect(self.check_changed)

    def close(self) -> None:
        """Stop reading; what is not read is read after the next start."""
        for cancel in self._cancels.values():
            cancel.set()
        self._worker.end(self._texts.close)

    # --- intents --------------------------------------------------------------------------------

    def attach(self, paths: Sequence[Path], editing: int | None = None) -> None:
        """Attach files, and the files in folders, in the shown chat or the editor of a message.

        A file that is there already is not attached twice, but read again if it has changed.
        """
        place = self._place(editing)
        self._began()
        self._state.set_notice(NOTICE, None)
        self._large.clear()
        there = {each.path: each for each in self._shown.of(place)}
        for path in dict.fromkeys(map(str, paths)):
            if (known := there.get(path)) and known.phase is not AttachmentPhase.READING:
                self._read_if_changed(known)
        paths = [Path(path) for path in dict.fromkeys(map(str, paths)) if path not in there]
        if len(paths) > MOST_AT_ONCE:
            self._large |= dict.fromkeys(paths, 1)
            self._state.set_notice(NOTICE, _many_notice(len(paths)))
            return
        made = [self._new(FilePart(path.name or str(path), path=str(path))) for path in paths]
        self._add(place, made)
        for each, path in zip(made, paths, strict=True):
            self._user_files.run(
                lambda path=path: _files_in(path),
                lambda found, each=each: self._on_looked_at(each.id, found),
            )

    def attach_image(self, content: bytes, editing: int | None = None) -> None:
        """Attach a pasted picture, as a file of some picture format."""
        self.attach_contents(self._place(editing), [("", lambda _texts, _cancelled: content)])

    def attach_contents(
        self,
        place: Place,
        contents: Sequence[tuple[str, Content]],
        beside: int = 0,
        *,
        instead: bool = False,
    ) -> None:
        """Attach pictures by their names, whose files are made on the thread.

        They come after the attachment `beside`, or `instead` of it, if it is at that place.
        """
        self._began()
        self._state.set_notice(NOTICE, None)
        made = [self._new(ImagePart(name)) for name, _ in contents]
        there = self._shown.of(place)
        at = next((n for n, each in enumerate(there) if each.id == beside), len(there))
        self._set(place, (*there[: at + 1], *made, *there[at + 1 :]))
        if instead:
            self.remove(beside)
        for each, (_, content) in zip(made, contents, strict=True):
            self._read(each.id, each.kept, content)

    def take_large_folders(self) -> list[Path]:
        """The folders that were refused because they have too many files; ends their notice."""
        self._state.set_notice(NOTICE, None)
        folders = list(self._large)
        self._large.clear()
        return folders

    def attach_known(self, known: KnownFile, editing: int | None = None) -> None:
        """Attach a file by what is known of it; one that has changed is read from its path."""
        sha256 = "" if known.changed else known.sha256
        wanted = FilePart(known.name, sha256=sha256, kind=known.kind, path=known.path)
        self.restore(self._place(editing), [wanted], first=False)

    def remove(self, id: int) -> None:
        """Remove a file from its message."""
        if found := self._shown.find(id):
            place, _ = found
            self._cancel(id)
            self._set(place, [each for each in self._shown.of(place) if each.id != id])

    def undo_remove(self, removed: Attachment, index: int, editing: int | None = None) -> None:
        """Attach a file again that was removed, at its place among the others."""
        place = self._place(editing)
        there = self._shown.of(place)
        self._set(place, (*there[:index], removed, *there[index:]))
        if removed.phase is AttachmentPhase.READING:
            self._read(removed.id, removed.kept)

    def retry(self, id: int) -> None:
        """Read a file again that had no text."""
        if (found := self._shown.find(id)) and found[1].phase is AttachmentPhase.FAILED:
            self._read(id, found[1].kept)

    def reload(self, id: int) -> None:
        """Read a file again that has changed on disk; what was chosen of its pages is given up."""
        if (found := self._shown.find(id)) and found[1].path:
            was, reads = found[1].kept, Reads.WHOLE
            if isinstance(was, FilePart) and was.reads in (Reads.PASSAGES, Reads.TABLES):
                reads = was.reads
            self._read(id, FilePart(was.name, path=was.path, reads=reads))

    def set_pages(self, id: int, indexes: Collection[int]) -> None:
        """Let the model read some pages of a file, by their indexes; all of them: the whole."""
        if (found := self._shown.find(id)) and (part := found[1].file):
            chosen = tuple(sorted({each for each in indexes if 0 <= each < len(part.pages)}))
            if chosen and len(chosen) < len(part.pages):
                self._change_part(id, replace(part, reads=Reads.PAGES, chosen=chosen))
            elif chosen:
                self._change_part(id, replace(part, reads=Reads.WHOLE, chosen=()))

    def set_reads(self, id: int, reads: Reads) -> None:
        """Let the model read a file so; `PAGES` are those chosen before."""
        found = self._shown.find(id)
        if found and (part := found[1].file) and (reads is not Reads.PAGES or part.chosen):
            self._change_part(id, replace(part, reads=reads))

    def set_detail(self, id: int, detail: Detail | int) -> None:
        """Let the model see a picture so finely."""
        part = found[1].part if (found := self._shown.find(id)) else None
        if isinstance(part, ImagePart) and part.detail != detail:
            self._change_part(id, replace(part, detail=detail))

    def describe(self, id: int, words: str) -> None:
        """Set the description of a picture, for those who cannot see it."""
        if (found := self._shown.find(id)) and isinstance(part := found[1].part, ImagePart):
            described = replace(part, description=words)
            self._change(id, lambda each: replace(each, part=described))

    def read_by_parts(self, reads: Reads) -> None:
        """Let the model read the attached documents of the shown chat so.

        If there are none, those of the last message with documents are attached again; a notice
        says when there is none either.
        """
        place = self._state.current
        if self.refuses(place):
            return
        fits = has_table if reads is Reads.TABLES else bool
        here = [each for each in self._shown.of(place) if each.file and each.file.name]
        fitting = [each for each in here if each.file and fits(each.file)]
        for each in fitting:
            self.set_reads(each.id, reads)
        if fitting:
            return
        messages = [[f for f in files(m.parts) if fits(f)] for m in self._state.messages]
        last = next(filter(None, reversed(messages)), None)
        if last and not here:
            self.restore(place, [replace(part, reads=reads, chosen=()) for part in last])
            return
        notice = Notice(tr("This prompt is for a document."), tr("Attach a document first."))
        if reads is Reads.TABLES:
            names = listed([each.file.name for each in here if each.file])
            sentence = tr("There is no table in {name}.", name=names)
            if not here:
                sentence = tr("This prompt is for a table.")
            notice = Notice(sentence, tr("Attach a file with a table."))
        self._state.set_notice(NOTICE, notice)

    def begin_edit(self, message_id: int) -> None:
        """Show the files of a sent message at its editor, where they can be removed and added to."""
        message = self._state.message(message_id)
        if message is not None and message_id not in self._editing:
            self._editing.add(message_id)
            self._shown.set(
                Editing(message_id), [self._ready(p) for p in files_and_images(message.parts)]
            )

    def cancel_edit(self, message_id: int) -> None:
        """Give up the files at the editor of a message."""
        self._editing.discard(message_id)
        self.clear(Editing(message_id))

    def known_files(self, conversation: int | None) -> tuple[KnownFile, ...]:
        """The files that a chat has, the newest first: those of its messages, then the unsent ones."""
        branch = self._state.branches.get(conversation, ()) if conversation is not None else ()
        parts = [part for message in branch for part in files(message.parts)]
        parts += [each.file for each in self._shown.of(conversation) if each.file]
        newest = {(part.path or part.sha256 or part.name): part for part in parts}
        return tuple(
            KnownFile(part.name, part.sha256, part.path, part.kind)
            for part in reversed(newest.values())
        )

    def recent_files(self, then: Callable[[tuple[KnownFile, ...]], None]) -> None:
        """Call `then` with the files that were attached last in all chats, the newest first."""

        def found(parts: list[FilePart]) -> None:
            then(tuple(KnownFile(each.name, each.sha256, each.path, each.kind) for each in parts))

        self._store_queue.read(lambda store: store.recent_files(MOST_RECENT), found)

    def check_changed(self) -> None:
        """Look which files of the shown chat have changed on disk since they were attached."""
        place = self._state.current
        sent = {part.path: part for m in self._state.messages for part in files(m.parts)}
        unsent = {each.id: each.part for each in self._shown.of(place) if each.part}
        again = {part.path for part in unsent.values()}  # in the next message already
        if not sent and not unsent:
            self._shown.set_outdated(())
            return

        def look() -> tuple[list[FilePart], list[int]]:
            changed = [part for part in sent.values() if self._texts.is_changed(part)]
            return changed, [id for id, part in unsent.items() if self._texts.is_changed(part)]

        def looked(found: tuple[list[FilePart], list[int]]) -> None:
            for id in found[1]:
                self._change(id, lambda each: replace(each, changed=True))
            if self._state.current == place:
                parts = [part for part in found[0] if part.path not in again]
                self._shown.set_outdated(
                    [KnownFile(p.name, p.sha256, p.path, p.kind, changed=True) for p in parts]
                )

        self._user_files.run(look, looked)

    # --- sending --------------------------------------------------------------------------------

    def refuses(self, place: Place) -> bool:
        """Whether a file of a message has no text, so that it cannot be sent; a notice says why."""
        notice = self._unread(place)
        self._state.set_notice(NOTICE, notice)
        return notice is not None

    def _unread(self, place: Place) -> Notice | None:
        """Why a message cannot be sent: the first of its files without text."""
        files = self._shown.of(place)
        reading = [each for each in files if each.phase is AttachmentPhase.READING]
        failed = [each for each in files if each.phase is AttachmentPhase.FAILED]
        if reading:
            sentence = tr("{name} is still being read.", name=reading[0].name)
            return Notice(sentence, tr("Send the message in a moment."))
        if failed:
            return Notice(failed[0].fault, tr("Remove it from the message, or try again."))
        return None

    def parts(self, place: Place) -> tuple[FileOrImage, ...]:
        """The files and pictures of a message, in order."""
        return tuple(each.part for each in self._shown.of(place) if each.part)

    def with_files(self, message_id: int, parts: Parts) -> Parts:
        """An edited message with the files at its editor; with its own if there are none."""
        if message_id not in self._editing:
            return parts
        kept = self.parts(Editing(message_id))
        return (*kept, *without_files_and_images(parts))

    def clear(self, place: Place) -> None:
        """The files of a place were sent, or given up."""
        for each in self._shown.of(place):
            self._cancel(each.id)
            self._contents.pop(each.id, None)
        self._set(place, ())

    def put_back(self, parts: Parts) -> None:
        """Attach the files of a message that is not to be sent, before those of the shown chat."""
        place = self._state.current
        self._set(place, [*map(self._ready, files_and_images(parts)), *self._shown.of(place)])

    def restore(self, place: Place, wanted: Sequence[FileOrImage], *, first: bool = True) -> None:
        """Attach files and read them again; `first`: before those that are there."""
        made = [
            self._ready(part) if isinstance(part, FilePart) and part.text else self._new(part)
            for part in wanted
        ]
        there = self._shown.of(place)
        self._set(place, (*made, *there) if first else (*there, *made))
        for each in made:
            if each.part is None:
                self._read(each.id, each.kept)

    def _read_if_changed(self, known: Attachment) -> None:
        """Read a file again that is attached a second time, unless it is as it was."""
        if (part := known.part) is None:
            self.retry(known.id)
            return

        def looked(changed: bool) -> None:
            if changed:
                self.reload(known.id)

        self._user_files.run(lambda: self._texts.is_changed(part), looked)

    # --- reading --------------------------------------------------------------------------------

    def _on_looked_at(self, id: int, found: Sequence[Path] | None) -> None:
        """A path was looked at: it is a folder with these files, or none."""
        at = self._shown.find(id)
        if at is None:
            return  # it was removed meanwhile
        place, attachment = at
        if found is None:
            self._read(id, attachment.kept)
            return
        if not found or len(found) > MOST_FILES:
            self._set(place, [each for each in self._shown.of(place) if each.id != id])
            if found:
                self._large[Path(attachment.path)] = len(found)
            self._state.set_notice(NOTICE, _folder_notice(attachment.name, self._large))
            return
        made = [self._new(FilePart(path.name, path=str(path))) for path in found]
        folder = _Folder(attachment.name, {each.id for each in made})
        self._folders |= dict.fromkeys(folder.left, folder)
        there = self._shown.of(place)
        index = there.index(attachment)
        self._set(place, (*there[:index], *made, *there[index + 1 :]))
        for each in made:
            self._read(each.id, each.kept)

    def _read(self, id: int, wanted: FileOrImage, content: Content | None = None) -> None:
        """Read a file, or a picture with this content, or that of before, on the thread."""
        if before := self._cancels.get(id):
            before.set()
        if content is not None:
            self._contents[id] = content
        content = self._contents.get(id)
        self._cancels[id] = cancel = threading.Event()
        self._change(
            id,
            lambda each: Attachment(each.id, each.name, each.path, wanted=wanted),
        )
        texts, worker = self._texts, self._worker

        def show(share: float) -> None:
            if self._cancels.get(id) is cancel:
                self._change(id, lambda each: replace(each, progress=share))

        def progress(share: float) -> None:
            worker.post(lambda: show(share))

        worker.run(
            lambda: _outcome(texts, wanted, content, cancel.is_set, progress),
            lambda outcome: self._on_read(id, cancel, outcome),
        )

    def _on_read(self, id: int, cancel: threading.Event, outcome: _Outcome) -> None:
        if self._cancels.get(id) is not cancel:
            return  # it was removed, or is read again
        del self._cancels[id]
        folder = self._folders.pop(id, None)
        if folder is not None:
            self._on_read_of(folder, id, outcome)
        if (read := outcome.read) is not None:
            self._contents.pop(id, None)
            ready = AttachmentPhase.READY
            self._change(
                id,
                lambda each: replace(
                    each, phase=ready, part=read.part, thumbnail=read.thumbnail, progress=1.0
                ),
            )
        elif not (folder and outcome.unknown):
            self._change(
                id,
                lambda each: replace(
                    each,
                    phase=AttachmentPhase.FAILED,
                    fault=outcome.fault,
                    remedy=outcome.remedy,
                ),
            )

    def _on_read_of(self, folder: _Folder, id: int, outcome: _Outcome) -> None:
        """A file of a folder was read: one of a kind that cannot be read is left out, and said."""
        folder.left.discard(id)
        at = self._shown.find(id)
        if at is not None and outcome.unknown:
            place, attachment = at
            folder.skipped.append(attachment.name)
            self._set(place, [each for each in self._shown.of(place) if each.id != id])
        if not folder.left and folder.skipped:
            sentence = trn(
                "{name}: {count} file is of a kind that cannot be read, and was left out.",
                "{name}: {count} files are of kinds that cannot be read, and were left out.",
                len(folder.skipped),
                name=folder.name,
            )
            self._state.set_notice(NOTICE, Notice(sentence, ", ".join(folder.skipped)))

    # --- steps ----------------------------------------------------------------------------------

    def _place(self, editing: int | None) -> Place:
        return self._state.current if editing is None else Editing(editing)

    def _new(self, wanted: FileOrImage) -> Attachment:
        return Attachment(self._number(), wanted.name, wanted.path, wanted=wanted)

    def _ready(self, part: FileOrImage) -> Attachment:
        id, phase = self._number(), AttachmentPhase.READY
        return Attachment(id, part.name, part.path, phase, part, progress=1.0)

    def _cancel(self, id: int) -> None:
        if cancel := self._cancels.pop(id, None):
            cancel.set()
        if folder := self._folders.pop(id, None):
            folder.left.discard(id)

    def _add(self, place: Place, made: Sequence[Attachment]) -> None:
        self._set(place, (*self._shown.of(place), *made))

    def _change_part(self, id: int, part: FileOrImage) -> None:
        self._change(id, lambda each: replace(each, part=part, tokens=None))

    def _change(self, id: int, change: Callable[[Attachment], Attachment]) -> None:
        if found := self._shown.find(id):
            place, _ = found
            there = self._shown.of(place)
            self._set(place, [change(each) if each.id == id else each for each in there])

    def _set(self, place: Place, attachments: Sequence[Attachment]) -> None:
        """Set the files of a place, and store what is unsent if it is another than before.

        A notice about one of them is replaced when it no longer holds.
        """
        before, unread = [each.kept for each in self._shown.of(place)], self._unread(place)
        self._shown.set(place, attachments)
        if unread and unread == self._state.notices.get(NOTICE):
            self._state.set_notice(NOTICE, self._unread(place))
        is_deleted = isinstance(place, int) and self._state.conversation(place) is None
        if isinstance(place, Editing) or is_deleted:
            return
        if before != [each.kept for each in attachments]:
            self._drafts().write(place)


def default_extractor() -> TextExtractor:
    """The extractor of the app, whose modules are not needed before."""
    from app.documents.extract import Extractor

    return Extractor()


def _outcome(
    texts: FileTexts,
    wanted: FileOrImage,
    content: Content | None,
    cancelled: Callable[[], bool],
    progress: Callable[[float], None],
) -> _Outcome:
    """Read a file, on the thread; raises nothing."""
    name = wanted.name or tr("Pasted picture")
    try:
        if cancelled():
            raise ExtractionError(ExtractionFault.CANCELLED)
        if content is not None:
            wanted = texts.keep(wanted, content(texts, cancelled))
        return _Outcome(texts.read(wanted, cancelled, progress))
    except ExtractionError as error:
        words = fault_sentence(name, error.fault, error.detail)
        return _Outcome(None, *words, unknown=error.fault is ExtractionFault.UNKNOWN)
    except StoreError as error:
        return _Outcome(None, str(error), error.remedy)
    except Exception:  # noqa: BLE001  (the thread goes on with the next file)
        _log.exception("%s cannot be read", name)
        return _Outcome(None, *fault_sentence(name, ExtractionFault.CRASHED))


def _files_in(path: Path) -> list[Path] | None:
    """The files in a folder and its folders, without hidden ones; None: it is no folder."""
    return list(islice(_walk(path), _MOST_COUNTED)) if path.is_dir() else None


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(names):
            path = Path(root, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _many_notice(count: int) -> Notice:
    """Why none of so many files is attached."""
    sentence = tr("{count} files are too many to attach at once.", count=number(count))
    remedy = tr(
        "Up to {most} files can be attached at once. A collection takes all of them.",
        most=number(MOST_AT_ONCE),
    )
    return Notice(sentence, remedy, tr("Make a collection"))


def _folder_notice(name: str, large: Mapping[Path, int]) -> Notice:
    """Why nothing of a folder is attached: it is empty, or among those with too many files."""
    if not large:
        return Notice(tr("There are no files in the folder {name}.", name=name))
    count = sum(large.values())
    files = tr("{count} or more", count=number(count)) if count >= _MOST_COUNTED else number(count)
    sentence = trn(
        "The folder {names} has {files} files.",
        "The folders {names} have {files} files.",
        len(large),
        names=listed(path.name for path in large),
        files=files,
    )
    remedy = tr(
        "Up to {most} files of a folder can be attached at once. A collection takes all of them.",
        most=number(MOST_FILES),
    )
    return Notice(sentence, remedy, tr("Make a collection"))
