"""Parts of a message: text, thought, tool call and result, file, passages, section, table, image,
error.

The parts of an answer reproduce what the model wrote to the last character: a part keeps the exact
characters of its markup, so `written(split(text)) == text` for every text. The raw text is not
stored a second time: two copies could disagree, double the file, and a later kind of part (a tool
result between two texts) has no place in one text. The exactness is needed because an answer is
continued, and its cached keys and values are found again, by its text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeGuard

from app.domain.document_prompt import file_prompt, none_found_prompt, passages_prompt
from app.domain.documents import PageStart, PageUnit, Passage, Reads, SearchFault, Warned
from app.domain.fences import closed
from app.domain.remote_fault import RemoteFault
from engine import THOUGHT_ENDS, THOUGHT_OPENS, Detail, Fault, Role, split_answer

MOST_IMAGE_TOKENS = 16_384  # that the detail of a picture can be
_NO_CODE = Fault()


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of the user (as typed) or of a model (Markdown)."""

    text: str


@dataclass(frozen=True, slots=True)
class ThoughtPart:
    """The reasoning of a model, before its answer or between two parts of it."""

    text: str
    opens: str = THOUGHT_OPENS  # the characters before it: white space and the tag
    ends: str = THOUGHT_ENDS  # the tag after it; "" while it has not ended


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A call of a tool by a model."""

    name: str
    arguments: str = ""  # JSON text: those that it was called with
    call: str = ""  # id that its result repeats
    source: str = ""  # the characters of the model; "": not kept
    written: str = ""  # the arguments of the model, which the user has changed; "": they are those


class CallEnd(StrEnum):
    """Why a call was not carried out, or not to its end."""

    DENIED = "denied"  # by the user
    STOPPED = "stopped"  # by the user
    REFUSED = "refused"  # there is no such tool in this chat, or its arguments are wrong


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A picture or another file that a tool returned; its bytes are in a file named by their hash."""

    name: str  # safe as the name of a file on every system
    sha256: str
    size_bytes: int = 0
    width: int = 0  # pixels of a picture that can be shown; 0: it is none
    height: int = 0
    fault: str = ""  # an `ExtractionFault`: why a picture cannot be shown

    @property
    def image(self) -> ImagePart | None:
        """The picture that it is; None: it is none, or cannot be shown."""
        if not self.width or not self.height:
            return None
        size = self.size_bytes
        return ImagePart(
            self.name, self.sha256, width=self.width, height=self.height, size_bytes=size
        )


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """What a tool returned, or why there is nothing of it: the model reads that as data."""

    name: str
    text: str = ""  # without what cannot be seen, and cut to `app.tools.results.MOST_CHARACTERS`
    call: str = ""  # id of the call
    failed: bool = False
    end: str = ""  # a `CallEnd`; "": it was carried out
    seconds: float = 0.0  # that it took
    sha256: str = ""  # of the whole result in a file, where `text` is the beginning of it
    characters: int = 0  # of the whole result; 0: `text` is all of it
    ours: bool = (
        False  # the words are those of this app: the model need not be told that it is data
    )
    files: tuple[KeptFile, ...] = ()  # that it returned beside its text
    files_left_out: int = 0  # further ones, which were not kept


@dataclass(frozen=True, slots=True)
class FilePart:
    """An attached text: of a file, or pasted."""

    name: str  # of the file; "": pasted
    text: str = ""  # of all pages, which the search sees, and the model as `reads` says
    sha256: str = ""  # of the file's bytes, which are kept under it; "": they are not
    kind: str = ""  # a `DocumentKind`; "": not known
    unit: PageUnit = PageUnit.NONE
    pages: tuple[PageStart, ...] = ()  # none: it is one text
    reads: Reads = Reads.WHOLE
    chosen: tuple[int, ...] = ()  # indexes of `pages`, with `Reads.PAGES`
    warnings: tuple[Warned, ...] = ()
    path: str = ""  # of the file it was attached from
    modified: float = 0.0  # of that file, seconds since 1970
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PassagesPart:
    """The passages of documents that were found for a question; none: no passage fits it."""

    passages: tuple[Passage, ...] = ()
    searched: str = ""  # the words that were searched, if not those of the question
    unread: int = 0  # further ones that were found, for which there was no room
    missing: int = 0  # documents that could not be searched yet, or only a part of each
    skipped: bool = False  # the user asked without passages: nothing was searched


@dataclass(frozen=True, slots=True)
class SectionPart:
    """What a model made of one part of a long document, from which it writes its answer."""

    text: str  # "": it wrote nothing
    name: str = ""  # of the file
    unit: str = ""  # a `PageUnit`
    pages: str = ""  # labels of the pages, such as "3-5"
    page_count: int = 0
    number: int = 1  # among those of its level, from 1
    count: int = 1  # of all of its level
    file: int = 0  # index among the files of the question
    level: int = 0  # 0: of the document; 1: of the sections of level 0, and so on
    start: int = 0  # first character in the file's text, or index of a section of the level below
    end: int = 0  # behind the last one
    cut: bool = False  # the most tokens were generated before it was complete


@dataclass(frozen=True, slots=True)
class TablePart:
    """The result of a query over a table, from which a model writes its answer."""

    text: str  # Markdown; its first row names expressions of the query
    name: str = ""  # of the table
    query: str = ""  # JSON, see `app.domain.table_query`
    facts: str = ""  # JSON, see `app.domain.table_result`
    columns: tuple[str, ...] = ()  # of the table, which the query names


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An attached image; its bytes are in a file named by their hash."""

    name: str  # of the file; "": pasted
    sha256: str = ""
    path: str = ""  # of the file it was attached from
    width: int = 0  # pixels
    height: int = 0
    size_bytes: int = 0
    modified: float = 0.0  # of the file it was attached from, seconds since 1970
    detail: Detail | int = Detail.STANDARD  # a number: the most tokens that it may become
    description: str = ""  # in words, for those who cannot see it


@dataclass(frozen=True, slots=True)
class ErrorPart:
    """Why an answer failed: a code with parameters, of which the window makes the sentence."""

    fault: Fault | RemoteFault | SearchFault = _NO_CODE
    file: str = ""  # name of the model
    message: str = ""  # technical text of the engine
    remedy: str = ""


Part = (
    TextPart
    | ThoughtPart
    | ToolCallPart
    | ToolResultPart
    | FilePart
    | PassagesPart
    | SectionPart
    | TablePart
    | ImagePart
    | ErrorPart
)
Parts = tuple[Part, ...]
FileOrImage = FilePart | ImagePart
Content = str | Sequence[Part]  # of a message that is being made


def split(text: str) -> Parts:
    """The parts of a text that a model wrote; `prompt_text` joins them to the same text."""
    return tuple(
        ThoughtPart(piece.text, piece.opens, piece.ends)
        if piece.is_thought
        else TextPart(piece.text)
        for piece in split_answer(text)
    )


def parts_of(role: Role, content: Content) -> Parts:
    """The parts of a new message; a text is split if it is a model's."""
    if not isinstance(content, str):
        return tuple(content)
    if role is Role.ASSISTANT:
        return split(content)
    return (TextPart(content),) if content else ()


def prompt_text(parts: Iterable[Part]) -> str:
    """The text of a message as its author wrote it, which is also the model's input.

    Files, pasted texts and passages are separated by blank lines from what is around them.
    """
    text, after_file = "", False
    searched: list[str] = []  # names of the files of which the model reads passages
    for part in parts:
        match part:
            case FilePart(name=""):
                piece = part.text
            case FilePart():
                pages, chosen = part.pages, part.chosen if part.reads is Reads.PAGES else None
                if part.reads is Reads.PASSAGES:
                    searched.append(part.name)
                if not part.reads.is_counted:
                    continue
                piece = file_prompt(part.name, part.text, part.unit, pages, chosen)
            case PassagesPart():
                piece = passages_prompt(part.passages)
                if searched and not (part.passages or part.skipped):
                    piece = none_found_prompt(searched)
                if not piece:
                    continue
            case TextPart():
                piece = part.text
            case ThoughtPart():
                piece = part.opens + part.text + part.ends
            case ToolCallPart():
                piece = part.source or _call_source(part)
            case ToolResultPart() | SectionPart() | TablePart() | ImagePart() | ErrorPart():
                continue
        is_file = isinstance(part, FilePart | PassagesPart)
        text = f"{text}\n\n{piece}" if text and (is_file or after_file) else text + piece
        after_file = is_file
    return text


def _call_source(call: ToolCallPart) -> str:
    """A call in the notation that most models with tools were trained on."""
    name = json.dumps(call.name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {call.arguments or "{}"}}}\n</tool_call>'


def without_error(parts: Parts) -> Parts:
    """All parts but errors."""
    return tuple(part for part in parts if not isinstance(part, ErrorPart))


def without_empty_ends(parts: Iterable[Part]) -> Parts:
    """Parts of the user without the empty lines at both ends of what was typed or pasted.

    Nothing else is removed: the indentation of the first line and spaces at the end of the last
    one are the user's. Nothing is left of texts without a visible character.
    """
    left = list(parts)
    while left and _is_own(first := left[0]):
        if first.text.strip():
            left[0] = _with_text(first, first.text.lstrip("\r\n"))
            break
        del left[0]
    while left and _is_own(last := left[-1]):
        if last.text.strip():
            left[-1] = _with_text(last, last.text.rstrip("\r\n"))
            break
        del left[-1]
    return tuple(left)


def _is_own(part: Part) -> TypeGuard[TextPart | FilePart]:
    """Whether a part was typed or pasted."""
    return isinstance(part, TextPart) or (isinstance(part, FilePart) and not part.name)


def _with_text(part: TextPart | FilePart, text: str) -> Part:
    return replace(part, text=text)


def attachments(parts: Iterable[Part]) -> tuple[FileOrImage, ...]:
    """The attached files and images, without passages that were found in them."""
    return tuple(part for part in parts if isinstance(part, FilePart | ImagePart))


def files(parts: Iterable[Part]) -> tuple[FilePart, ...]:
    """The attached files, without pasted texts."""
    return tuple(part for part in parts if isinstance(part, FilePart) and part.name)


def files_and_images(parts: Iterable[Part]) -> tuple[FileOrImage, ...]:
    """The attached files and pictures, without pasted texts."""
    return tuple(part for part in parts if _is_file_or_image(part))


def without_files_and_images(parts: Iterable[Part]) -> Parts:
    """All parts but the attached files and pictures; pasted texts are among them."""
    return tuple(part for part in parts if not _is_file_or_image(part))


def images(parts: Iterable[Part]) -> tuple[ImagePart, ...]:
    """The pictures among parts."""
    return tuple(part for part in parts if isinstance(part, ImagePart))


def unseen_image(image: ImagePart) -> str:
    """What a model reads in place of a picture that it cannot see."""
    name, said = (json.dumps(each, ensure_ascii=False) for each in (image.name, image.description))
    described = f" described as {said}" if image.description else ""
    return f"\n[picture {name}{described}, which you cannot see]\n"


def _is_file_or_image(part: Part) -> TypeGuard[FileOrImage]:
    return isinstance(part, ImagePart) or (isinstance(part, FilePart) and bool(part.name))


def clipboard_text(parts: Parts) -> str:
    """The text to copy: what was said, without thoughts and tools unless there is nothing else.

    Of a file it is the name.
    """
    said = [
        TextPart(f"[{part.name}]\n\n") if isinstance(part, FilePart) and part.name else part
        for part in parts
        if isinstance(part, TextPart | FilePart)
    ]
    text = prompt_text(said).strip("\n")
    return text if text.strip() else "\n\n".join(_unsaid(part) for part in parts).strip("\n")


def _unsaid(part: Part) -> str:
    return (
        part.text
        if isinstance(part, ThoughtPart | ToolResultPart | SectionPart | TablePart)
        else ""
    )


def typed_text(parts: Iterable[Part]) -> str:
    """The text that the user typed, without attachments."""
    return prompt_text(part for part in parts if isinstance(part, TextPart))


def edited_answer(parts: Parts, text: str) -> Parts:
    """An answer whose text the user has changed: its thoughts and tools, and then that text.

    The blank lines between thoughts and text stay; the same text gives the same parts.
    """
    before = typed_text(parts)
    if text.strip("\n") == before.strip("\n"):
        return parts
    kept = tuple(part for part in parts if not isinstance(part, TextPart | ErrorPart))
    blank = before[: len(before) - len(before.lstrip("\n"))]
    return (*kept, TextPart(blank + text.strip("\n")))


def with_section(parts: Parts, section: SectionPart | TablePart) -> Parts:
    """The parts of an answer with a section more, or with a better one in its place."""
    if isinstance(section, TablePart):
        return (*parts, section)

    def is_same(part: Part) -> bool:
        place = (section.level, section.file, section.start, section.end)
        return isinstance(part, SectionPart) and (
            (part.level, part.file, part.start, part.end) == place
        )

    if not any(map(is_same, parts)):
        return (*parts, section)
    return tuple(section if is_same(part) else part for part in parts)


def sections(parts: Iterable[Part]) -> tuple[SectionPart, ...]:
    """What was made of the parts of a document, without what was put together of it."""
    return tuple(part for part in parts if isinstance(part, SectionPart) and not part.level)


def rewritten_text(parts: Iterable[Part]) -> str:
    """The document that was made part by part; "" if an answer was written from the sections."""
    parts = tuple(parts)
    if typed_text(parts).strip():
        return ""
    return "\n\n".join(closed(part.text) for part in sections(parts) if part.text)


def search_text(parts: Iterable[Part]) -> str:
    """The text by which a message is found: of all its parts, without their markup."""
    pieces: list[str] = []
    for part in parts:
        match part:
            case TextPart() | ThoughtPart():
                pieces.append(part.text)
            case ToolCallPart():
                pieces += [part.name, part.arguments]
            case ToolResultPart():
                pieces += [part.text, *(file.name for file in part.files)]
            case SectionPart() | TablePart():
                pieces.append(part.text)
            case FilePart():
                pieces += [part.name, part.text]
            case PassagesPart():
                pieces += [passage.text for passage in part.passages if not passage.struck]
            case ImagePart():
                pieces += [part.name, part.description]
            case ErrorPart():
                pass
    return "\n\n".join(filter(None, pieces))
