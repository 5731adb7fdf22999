"""Import and export of chats: programs, formats, what a file contains, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType


class Program(Enum):
    """A program whose chats can be imported; the value begins the `origin` of its chats."""

    TOKONOMA = "tokonoma"
    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    LM_STUDIO = "lmstudio"
    JAN = "jan"
    OPEN_WEBUI = "openwebui"
    SILLY_TAVERN = "sillytavern"
    OLLAMA = "ollama"


PROGRAM_NAMES: Mapping[Program, str] = {
    Program.TOKONOMA: "Tokonoma",
    Program.CHATGPT: "ChatGPT",
    Program.CLAUDE: "Claude",
    Program.LM_STUDIO: "LM Studio",
    Program.JAN: "Jan",
    Program.OPEN_WEBUI: "Open WebUI",
    Program.SILLY_TAVERN: "SillyTavern",
    Program.OLLAMA: "Ollama",
}
# The reader was run on a file that the program itself wrote; the others follow descriptions.
TESTED = frozenset((Program.TOKONOMA, Program.OPEN_WEBUI))


class Dropped(Enum):
    """What of a chat cannot be taken over."""

    IMAGES = "images"
    AUDIO = "audio"
    FILES = "files"  # attached ones whose text is not in the export
    HIDDEN = "hidden"  # messages that the program did not show
    DAMAGED = "damaged"  # messages that could not be read
    CHATS = "chats"  # that could not be read
    EMPTY = "empty"  # chats without a message


class ExportFormat(Enum):
    """A format of exported chats; the value is the extension of the file."""

    MARKDOWN = "md"
    JSON = "json"
    HTML = "html"
    PDF = "pdf"


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """What is in a file of chats, before any is imported."""

    paths: tuple[Path, ...]
    programs: tuple[Program, ...]
    chats: int = 0  # that would be imported
    messages: int = 0  # of them
    known: int = 0  # chats that are here already, and are skipped
    changed: int = 0  # of `chats`: an earlier state is here, which stays
    dropped: Mapping[Dropped, int] = field(default_factory=lambda: MappingProxyType({}))
    problem: str = ""  # why the file was not read to its end

    @property
    def untested(self) -> tuple[Program, ...]:
        """The programs whose exports were never tried here."""
        return tuple(each for each in self.programs if each not in TESTED)


class Work(Enum):
    """What is being done."""

    READING = "reading"  # for the preview
    IMPORTING = "importing"
    EXPORTING = "exporting"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import or export is."""

    work: Work
    done: float = 0.0  # 0 to 1
    chats: int = 0  # so far
