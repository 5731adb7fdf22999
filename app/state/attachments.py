"""Observable state of attached files that are not sent, and whether the next prompt fits.

Only `app.chat.sending.attachments` and `app.chat.sending.fit` change it; values are immutable, as in
`app.state.chat`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from PySide6.QtCore import QObject, Signal

from app.domain.model_ref import ModelRef
from app.domain.parts import FileOrImage, FilePart, ImagePart
from app.state.observable import Observable, ReadOnly
from app.system.translation import tr
from engine import Detail


@dataclass(frozen=True, slots=True)
class Editing:
    """The editor of a sent message, as the place where files are attached."""

    message: int


Place = int | None | Editing  # a chat, the new chat, or the editor of a sent message


class AttachmentPhase(Enum):
    """What is done about an attached file."""

    READING = "reading"  # its text is being extracted
    READY = "ready"
    FAILED = "failed"  # it has no text: `fault` says why


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file or picture of a message that is not sent."""

    id: int
    name: str  # of the file; "": pasted
    path: str = ""  # it was attached from
    phase: AttachmentPhase = AttachmentPhase.READING
    part: FileOrImage | None = None  # once it is READY
    tokens: int | None = None  # of what the model reads of it; None: not counted
    approximate: bool = False  # the tokens are estimated by characters
    progress: float = 0.0  # of READING, 0 to 1; 0: not known
    fault: str = ""  # one sentence: why it has no text
    remedy: str = ""  # what the user can do; "": nothing
    changed: bool = False  # the file on disk is another one now: `reload` reads it again
    wanted: FileOrImage | None = None  # what is read of it, before it is READY
    thumbnail: bytes = b""  # PNG, of a picture

    @property
    def file(self) -> FilePart | None:
        """Its part if it is a text that was read, and no picture."""
        return self.part if isinstance(self.part, FilePart) else None

    @property
    def shown_name(self) -> str:
        """The name of the file, or what it is."""
        return self.name or (tr("Pasted picture") if self.is_image else tr("Pasted text"))

    @property
    def is_image(self) -> bool:
        """Whether it is known to be a picture."""
        return isinstance(self.part or self.wanted, ImagePart)

    @property
    def kept(self) -> FileOrImage:
        """What is stored of it while it is not sent: its text is read again after a start, unless
        its bytes are not kept.
        """
        if self.part is None:
            return self.wanted or FilePart(self.name, path=self.path)
        if not self.part.sha256 or isinstance(self.part, ImagePart):
            return self.part
        return replace(self.part, text="", pages=(), warnings=())


@dataclass(frozen=True, slots=True)
class DetailTokens:
    """What a picture costs the loaded model in each detail."""

    low: int
    standard: int
    high: int

    @property
    def is_fixed(self) -> bool:
        """Whether it costs the same in each."""
        return self.low == self.standard == self.high

    def of(self, detail: Detail) -> int:
        """The tokens of a detail."""
        return {
            Detail.LOW: self.low,
            Detail.STANDARD: self.standard,
            Detail.HIGH: self.high,
        }[detail]


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file that was attached before, or is on disk, and can be attached by its name."""

    name: str
    sha256: str = ""  # of its bytes, with which its text is stored; "": it is read from `path`
    path: str = ""
    kind: str = ""  # a `DocumentKind`
    changed: bool = False  # on disk since it was attached


@dataclass(frozen=True, slots=True)
class LongerContext:
    """A context of the loaded model in which the prompt fits."""

    tokens: int
    size_bytes: int  # of its cache in memory
    fits: bool  # the memory is free


@dataclass(frozen=True, slots=True)
class OtherModel:
    """An installed model whose context is long enough."""

    model: ModelRef
    name: str
    context: int  # tokens


@dataclass(frozen=True, slots=True)
class FitEstimate:
    """The next whole prompt of a chat: instructions, history as it is kept, files and text."""

    tokens: int  # of the prompt
    context: int  # of the model, in tokens; 0: not known
    answer_tokens: int = 0  # room that is kept for the answer
    file_tokens: int = 0  # of `tokens`, those of the files that are not sent
    cached_tokens: int = 0  # that need not be read again
    seconds: float = 0.0  # until the first token; 0: not known
    approximate: bool = False  # estimated by characters
    forgotten: tuple[str, ...] = ()  # names of earlier files that are no longer read
    parts: int = 0  # about, in which files are read; 0: no file is read part by part
    part_tokens: int = 0  # of these files, which are not in `tokens`
    part_seconds: float = 0.0  # until all is done, about; 0: not known
    longer_context: LongerContext | None = None
    models: tuple[OtherModel, ...] = ()
    less_detail: tuple[tuple[int, int], ...] = ()  # ids of pictures, and the tokens that fit
    editing: Editing | None = None  # it is of an edited message; None: of the next one

    @property
    def fits(self) -> bool:
        """Whether the model can read all of it and answer."""
        return not self.context or self.tokens + self.answer_tokens <= self.context


class AttachmentsState(Observable):
    """Observable; every signal is sent after the values have changed."""

    changed = Signal(object)  # the `Place` whose files have changed
    fit_changed = Signal()
    details_changed = Signal()  # what a picture costs was counted
    counted = Signal()  # a message that the user has sent before its length was known
    outdated_changed = Signal()

    fit = ReadOnly[FitEstimate | None](None)  # of the shown chat; None: not known
    outdated = ReadOnly[tuple[KnownFile, ...]](())  # sent in the shown chat, and changed since then
    refused = ReadOnly(False)  # sending was refused because it does not fit: show the four ways

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._unsent: dict[Place, tuple[Attachment, ...]] = {}
        self._fit: FitEstimate | None = None
        self._refused = False
        self._outdated: tuple[KnownFile, ...] = ()
        self._details: dict[int, DetailTokens] = {}

    def places(self) -> tuple[Place, ...]:
        """All places with files."""
        return tuple(self._unsent)

    def of(self, place: Place) -> tuple[Attachment, ...]:
        """The files that are attached at a place, in order."""
        return self._unsent.get(place, ())

    def find(self, attachment: int) -> tuple[Place, Attachment] | None:
        """The place of an attachment, and the attachment; None if it was removed."""
        for place, unsent in self._unsent.items():
            for each in unsent:
                if each.id == attachment:
                    return place, each
        return None

    def details(self, attachment: int) -> DetailTokens | None:
        """What the picture of an attachment costs; None: not counted."""
        return self._details.get(attachment)

    # --- changing: app.chat.sending.attachments and app.chat.sending.fit only -----------------------------------

    def set(self, place: Place, attachments: Sequence[Attachment]) -> None:
        """Set the files of a place; none removes it."""
        if tuple(attachments) == self.of(place):
            return
        if attachments:
            self._unsent[place] = tuple(attachments)
        else:
            self._unsent.pop(place, None)
        self.changed.emit(place)

    def set_details(self, attachment: int, tokens: DetailTokens | None) -> None:
        """Set what a picture costs; None: it is not known for the model that is used now."""
        if tokens is None:
            self._details.pop(attachment, None)
        else:
            self._details = {attachment: tokens}  # one is looked at
        self.details_changed.emit()

    def set_outdated(self, outdated: Sequence[KnownFile]) -> None:
        """Set the files of sent messages that have changed on disk."""
        self._set(self.outdated_changed, outdated=tuple(outdated))

    def set_fit(self, fit: FitEstimate | None, *, refused: bool = False) -> None:
        """Set the estimate of the shown chat, and whether sending was refused by it."""
        self._set(self.fit_changed, fit=fit, refused=refused)
