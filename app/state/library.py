"""Observable state of the models page: installed files, downloads, catalog, hub and folders.

Only `app.library.service` changes it; the page reads it and connects to its signals. Rows are
immutable and contain facts; the page writes the sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from PySide6.QtCore import Signal

from app.downloads.catalog import CatalogEmbedder, CatalogModel
from app.downloads.queue import Download
from app.net.hub import Piece, Repository, Source
from app.settings.model_settings import AS_IN_SETTINGS, ModelDefaults
from app.state.observable import Observable, ReadOnly
from engine import DeviceInfo, DevicePart, DeviceRefusal, Fault, is_usual


class FileState(Enum):
    """Result of inspecting a model file."""

    UNKNOWN = "unknown"  # not inspected yet
    GOOD = "good"  # a complete model this version runs
    EMBEDS = "embeds"  # turns texts into vectors: searches documents, cannot chat
    BAD = "bad"  # not usable: `problem` is the reason
    MISSING = "missing"  # linked, and not found now


class Place(Enum):
    """Kind of place a file is in."""

    OWN = "own"  # the app's folder of models
    FOLDER = "folder"  # a folder the user added
    FILE = "file"  # a single file the user opened or dropped
    BUNDLED = "bundled"  # shipped with the app, read-only


class LineAction(Enum):
    """What the link of a status line does; the page names it."""

    UNDO = "undo"
    UNLOAD = "unload"
    USE = "use"


class HubPhase(Enum):
    """Phase of a hub request."""

    IDLE = "idle"
    ASKING = "asking"
    ANSWERED = "answered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Memory:
    """Predicted memory of a model and the memory available for it, in bytes."""

    needed_bytes: int  # predicted at `context`
    available_bytes: int  # after unloading the current model
    context: int = 0  # tokens
    weights_bytes: int = 0
    cache_bytes: int = 0
    scratch_bytes: int = 0
    at_least: bool = False  # a lower bound: only the file size is known, not the model's shape
    offloaded_bytes: int = 0  # of layers that do not fit: read from the disk for every token
    offloaded_seconds: float = 0.0  # that this takes; 0: not known
    encoder_bytes: int = 0  # of a picture encoder, with all that pictures take; 0: there is none


@dataclass(frozen=True, slots=True)
class InstalledRow:
    """A model file on this machine."""

    path: Path
    name: str
    size_bytes: int  # of all its parts
    place: Place
    state: FileState = FileState.UNKNOWN
    layout: str = ""  # in words, such as "4-bit"
    format: str = ""  # the exact name, such as "Q4_K_M"
    architecture: str = ""
    parameters: int = 0
    context_model: int = 0  # tokens
    memory: Memory | None = None
    problem: str = ""
    remedy: str = ""
    fault: Fault | None = None  # `problem` as a code
    own_settings: bool = False  # has settings for this model alone
    encoder: Path | None = None  # the file that it sees pictures with, once it is inspected

    @property
    def sees(self) -> bool:
        """Whether a picture encoder beside it fits."""
        return self.encoder is not None

    @property
    def is_encoder(self) -> bool:
        """Whether it is a picture encoder, used with its model; by its name until it is inspected."""
        if self.state is FileState.UNKNOWN:
            return is_usual(self.path.name)
        return self.fault is not None and self.fault.about == "mmproj"

    @property
    def may_chat(self) -> bool:
        """Whether it may be offered for chats, perhaps as one that cannot be used."""
        return self.state not in (FileState.MISSING, FileState.EMBEDS) and not self.is_encoder


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that can be downloaded: from the catalog, a search or a link."""

    source: Source
    name: str
    layout: str = ""  # in words, such as "4-bit"
    format: str = ""  # the exact name, such as "Q4_K_M"
    recommended: bool = False
    problem: str = ""  # why it cannot be used here
    memory: Memory | None = None  # predicted
    here: Path | None = None  # path of the installed copy, if any
    coming: bool = False  # already being downloaded
    label: str = ""  # in a list of files: unlike those of the others, such as "UD-Q4_K_XL"
    encoders: tuple[Piece, ...] = ()  # for pictures, the preferred one first; sizes may be computed
    sees: bool = False  # the installed copy has a picture encoder, or one is on its way

    @property
    def encoder(self) -> Piece | None:
        """The picture encoder that is downloaded with it, as listed."""
        chosen = self.source.encoder
        return next((one for one in self.encoders if chosen and one.file == chosen.file), None)

    @property
    def size_bytes(self) -> int:
        """Of the whole download; 0: unknown."""
        encoder = self.encoder.size_bytes if self.encoder else 0
        return self.source.size_bytes and self.source.size_bytes + encoder


@dataclass(frozen=True, slots=True)
class BetterModel:
    """A more capable model than the starter, offered on the empty page."""

    offer: Offer
    download: Download | None = None  # in progress
    put_away: bool = False  # the download failed or is paused, and is not shown in chats


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """A model the app recommends."""

    model: CatalogModel
    offer: Offer


@dataclass(frozen=True, slots=True)
class EmbedderRow:
    """A model that the app recommends to search documents with."""

    model: CatalogEmbedder
    offer: Offer


@dataclass(frozen=True, slots=True)
class Hub:
    """The last hub request and its result."""

    phase: HubPhase = HubPhase.IDLE
    query: str = ""
    results: tuple[Repository, ...] = ()
    error: str = ""
    remedy: str = ""
    open: str = ""  # the repository whose files are shown
    open_phase: HubPhase = HubPhase.IDLE
    files: tuple[Offer, ...] = ()
    open_error: str = ""
    open_remedy: str = ""
    missing: str = ""  # file or quantization that a link named, and the repository does not have


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A folder the library scans."""

    path: Path
    own: bool
    present: bool
    models: int = 0
    skipped: tuple[Path, ...] = ()  # links in it to folders that are missing, or that lead back up


@dataclass(frozen=True, slots=True)
class TrashedModel:
    """A deleted model that can be restored: its files under their old and their hidden names."""

    path: Path
    name: str
    size_bytes: int  # on the disk until it is removed
    linked: bool  # it was linked as a single file
    deleted: float  # seconds since 1970
    moves: tuple[tuple[Path, Path], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A status line about the last operation, with an optional action."""

    sentence: str
    remedy: str = ""
    action: LineAction | None = None  # of the link
    trouble: bool = False
    about: Path | None = None  # model file the action is about


@dataclass(frozen=True, slots=True)
class DefaultsView:
    """One model's own settings as the card shows them."""

    path: Path
    name: str
    values: ModelDefaults = AS_IN_SETTINGS
    settings: ModelDefaults = AS_IN_SETTINGS  # values in use where nothing is set
    context_model: int = 0  # tokens; 0: not known
    memory: Memory | None = None  # predicted with the current values
    problem: str = ""  # why it would fail to load with them
    drafts: tuple[tuple[Path, str], ...] = ()  # models that may draft for it, and their names
    runs_on: tuple[DevicePart, ...] = ()  # predicted with the current values
    speedup: float = 0.0  # predicted, relative to the processor alone; 0: it runs there
    moved: DeviceRefusal | None = None  # why it would not run where these values ask for


class LibraryState(Observable):
    """Observable; every signal is sent after the values have changed."""

    installed_changed = Signal()
    downloads_changed = Signal()
    catalog_changed = Signal()
    better_changed = Signal()
    hub_changed = Signal()
    folders_changed = Signal()
    trash_changed = Signal()
    line_changed = Signal()
    defaults_changed = Signal()

    searched = ReadOnly(False)  # whether the folders have been scanned at least once
    installed = ReadOnly[tuple[InstalledRow, ...]](())
    downloads = ReadOnly[tuple[Download, ...]](())
    catalog = ReadOnly[tuple[CatalogRow, ...]](())
    embedders = ReadOnly[tuple[EmbedderRow, ...]](())  # the preferred one first
    embedder = ReadOnly[Path | None](None)  # the installed one that is used; None: not known
    computer_bytes = ReadOnly(0)  # memory of this computer; 0: not known yet
    better = ReadOnly[BetterModel | None](None)
    bytes_per_second = ReadOnly(0.0)  # of the last downloads; 0: none was measured
    hub = ReadOnly(Hub())
    folders = ReadOnly[tuple[FolderRow, ...]](())
    trash = ReadOnly[tuple[TrashedModel, ...]](())  # the last deleted first
    free_bytes = ReadOnly(-1)  # on the disk of the app's own folder; -1: not known
    line = ReadOnly[Line | None](None)
    defaults = ReadOnly[DefaultsView | None](None)
    devices = ReadOnly[tuple[DeviceInfo, ...]](())  # beside the processor

    # --- changing: app.library.service only -----------------------------------------------------

    def set_devices(self, devices: tuple[DeviceInfo, ...]) -> None:
        """Set the devices that models can run on."""
        self._set(self.defaults_changed, devices=devices)

    def set_installed(self, rows: Sequence[InstalledRow]) -> None:
        """Set the files on this machine."""
        self._set(self.installed_changed, searched=True, installed=tuple(rows))

    def set_downloads(self, rows: Sequence[Download]) -> None:
        """Set the downloads, the oldest first."""
        self._set(self.downloads_changed, downloads=tuple(rows))

    def set_catalog(self, rows: Sequence[CatalogRow], computer_bytes: int = 0) -> None:
        """Set the recommended models in the order they are shown, and this computer's memory."""
        self._set(self.catalog_changed, catalog=tuple(rows), computer_bytes=computer_bytes)

    def set_embedders(self, rows: Sequence[EmbedderRow]) -> None:
        """Set the recommended models to search documents with."""
        self._set(self.catalog_changed, embedders=tuple(rows))

    def set_embedder(self, path: Path | None) -> None:
        """Set the installed model that documents are searched with: app.chat.documents.encoder only."""
        self._set(self.installed_changed, embedder=path)

    def set_speed(self, bytes_per_second: float) -> None:
        """Set the speed of the last downloads."""
        self._set(self.better_changed, bytes_per_second=bytes_per_second)

    def set_better(self, better: BetterModel | None) -> None:
        """Offer a more capable model on the empty page, or withdraw the offer."""
        self._set(self.better_changed, better=better)

    def set_hub(self, hub: Hub) -> None:
        """Set the last hub request and its result."""
        self._set(self.hub_changed, hub=hub)

    def set_folders(self, rows: Sequence[FolderRow], free_bytes: int) -> None:
        """Set the folders, the app's own first, and the free space on the disk of that one."""
        self._set(self.folders_changed, folders=tuple(rows), free_bytes=free_bytes)

    def set_trash(self, models: Sequence[TrashedModel]) -> None:
        """Set the deleted models that can be restored."""
        shown = tuple(sorted(models, key=lambda each: -each.deleted))
        self._set(self.trash_changed, trash=shown)

    def set_line(self, line: Line | None) -> None:
        """Show the status line at the top of the page, or hide it."""
        self._set(self.line_changed, line=line)

    def set_defaults(self, view: DefaultsView | None) -> None:
        """Show the settings card of one model, or hide it."""
        self._set(self.defaults_changed, defaults=view)
