"""What the page of models shows: files on this machine, downloads, the catalog, the hub, folders.

`app.library.service` is the only one that changes it; the page reads it and listens to its signals. Rows
are immutable and say facts, never sentences about looks: the words are the page's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.downloads.catalog import CatalogModel
from app.downloads.queue import Download
from app.net.hub import Repository, Source
from app.settings.model_settings import AS_IN_SETTINGS, ModelDefaults


class FileState(Enum):
    """What is known of a model file."""

    UNKNOWN = "unknown"  # not looked into yet
    GOOD = "good"  # a whole model this version runs
    BAD = "bad"  # `problem` says why it cannot be used
    MISSING = "missing"  # linked, and not there now


class Place(Enum):
    """Whose the folder of a file is."""

    OWN = "own"  # the app's folder of models
    FOLDER = "folder"  # a folder the person added
    FILE = "file"  # a single file the person opened or dropped
    BUNDLED = "bundled"  # a part of the app, which nobody may change


class HubPhase(Enum):
    """Where a question to the hub stands."""

    IDLE = "idle"
    ASKING = "asking"
    ANSWERED = "answered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Memory:
    """What a model will hold in memory, beside what there is for it; all in bytes."""

    needed_bytes: int  # predicted at `context`
    available_bytes: int  # with what is loaded now given back
    context: int = 0  # tokens
    weights_bytes: int = 0
    cache_bytes: int = 0
    scratch_bytes: int = 0
    at_least: bool = False  # only the file is known, not its shape


@dataclass(frozen=True, slots=True)
class InstalledRow:
    """A model file on this machine."""

    path: Path
    name: str
    size_bytes: int  # of all its parts
    place: Place
    state: FileState = FileState.UNKNOWN
    layout: str = ""  # in words
    format: str = ""  # the exact name
    architecture: str = ""
    parameters: int = 0
    context_model: int = 0  # tokens
    memory: Memory | None = None
    problem: str = ""
    remedy: str = ""
    own_settings: bool = False  # the person set something for this model alone


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that can be downloaded: from the catalog, a search or a link."""

    source: Source
    name: str
    layout: str = ""  # in words
    format: str = ""  # the exact name
    recommended: bool = False
    problem: str = ""  # why it is of no use here
    memory: Memory | None = None  # predicted
    here: Path | None = None  # where it already is
    coming: bool = False  # already being downloaded


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """A model the app recommends."""

    model: CatalogModel
    offer: Offer


@dataclass(frozen=True, slots=True)
class Hub:
    """What was asked of the hub last, and what it said."""

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


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A folder the library looks through."""

    path: Path
    own: bool
    present: bool
    models: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line about what just happened, with perhaps one thing to do about it."""

    sentence: str
    remedy: str = ""
    action: str = ""  # what the link says; empty: none
    trouble: bool = False
    about: Path | None = None  # what the link uses


@dataclass(frozen=True, slots=True)
class DefaultsView:
    """One model's own settings as the card shows them."""

    path: Path
    name: str
    values: ModelDefaults = AS_IN_SETTINGS
    settings: ModelDefaults = AS_IN_SETTINGS  # what holds where nothing is set
    context_model: int = 0  # tokens; 0: not known
    memory: Memory | None = None  # with the values as they are
    problem: str = ""  # why it would not load with them


class LibraryState(QObject):
    """Observable; every signal is sent after the values have changed."""

    installed_changed = Signal()
    downloads_changed = Signal()
    catalog_changed = Signal()
    hub_changed = Signal()
    folders_changed = Signal()
    line_changed = Signal()
    defaults_changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.searched = False  # whether the folders were looked through at all
        self.installed: tuple[InstalledRow, ...] = ()
        self.downloads: tuple[Download, ...] = ()
        self.catalog: tuple[CatalogRow, ...] = ()
        self.hub = Hub()
        self.folders: tuple[FolderRow, ...] = ()
        self.free_bytes = -1  # on the disk of the app's own folder; -1: not known
        self.line: Line | None = None
        self.defaults: DefaultsView | None = None

    # --- changing: app.library.service only -------------------------------------------------------------

    def set_installed(self, rows: Sequence[InstalledRow]) -> None:
        """The files on this machine."""
        if not self.searched or self.installed != tuple(rows):
            self.searched, self.installed = True, tuple(rows)
            self.installed_changed.emit()

    def set_downloads(self, rows: Sequence[Download]) -> None:
        """The downloads, the oldest first."""
        if self.downloads != tuple(rows):
            self.downloads = tuple(rows)
            self.downloads_changed.emit()

    def set_catalog(self, rows: Sequence[CatalogRow]) -> None:
        """The models the app recommends, those of a family together."""
        if self.catalog != tuple(rows):
            self.catalog = tuple(rows)
            self.catalog_changed.emit()

    def set_hub(self, hub: Hub) -> None:
        """What the hub was asked and said."""
        if self.hub != hub:
            self.hub = hub
            self.hub_changed.emit()

    def set_folders(self, rows: Sequence[FolderRow], free_bytes: int) -> None:
        """The folders, the app's own first, and the room on that one's disk."""
        if (self.folders, self.free_bytes) != (tuple(rows), free_bytes):
            self.folders, self.free_bytes = tuple(rows), free_bytes
            self.folders_changed.emit()

    def set_line(self, line: Line | None) -> None:
        """Say something at the top of the page, or take it away."""
        if self.line != line:
            self.line = line
            self.line_changed.emit()

    def set_defaults(self, view: DefaultsView | None) -> None:
        """What the card of one model's settings shows."""
        if self.defaults != view:
            self.defaults = view
            self.defaults_changed.emit()
