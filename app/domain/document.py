"""A chat as a document: one section for each message of its shown branch, as parsed blocks.

Markdown, HTML and PDF are written from it, so that they say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.domain.chat_tree import ChatTree, shown_branch
from app.domain.document_words import place_words
from app.domain.documents import Passage
from app.domain.file_words import section_words
from app.domain.message import Message
from app.domain.parts import (
    ErrorPart,
    FilePart,
    ImagePart,
    KeptFile,
    Part,
    PassagesPart,
    SectionPart,
    TablePart,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
)
from app.domain.passages import cited, first_words
from app.domain.table_words import result_notes, result_text, table_words
from app.domain.tool_files import left_out_sentence
from app.domain.tool_words import (
    cut_sentence,
    pretty_json,
    result_and_language,
    result_words,
    with_results_at_calls,
)
from app.domain.visible_text import escaped
from app.markdown.blocks import (
    Block,
    Code,
    Level,
    Paragraph,
    Place,
    Run,
    passage_link,
    passage_numbers,
    runs_of,
)
from app.markdown.inline import clean, clean_code
from app.markdown.lines import Lines
from app.markdown.stream import PlainText, parse
from app.system.byte_size import size
from app.system.translation import tr
from engine import Role

_HERE = Place(0, 1)
_NOTE_LENGTH = 240  # characters


@dataclass(frozen=True, slots=True)
class Section:
    """One message of a document."""

    heading: str  # who wrote it
    when: str  # "": not known
    is_user: bool
    blocks: tuple[Block, ...]
    are_notes: bool = False  # the passages that answers refer to; each block begins with its number


@dataclass(frozen=True, slots=True)
class PictureLabel(Paragraph):
    """The words that stand for a picture, in whose place a document may show it."""

    image: ImagePart


def sections(tree: ChatTree) -> Iterator[Section]:
    """The sections of the shown branch: the instructions of the chat before it, and behind it the
    passages that its answers refer to.
    """
    said = tree.settings.resolved.text or tree.settings.instructions
    if said and said.strip():
        yield Section(tr("Instructions"), "", True, tuple(PlainText(said).blocks))
    known: Mapping[int, Passage] = {}
    used = set[int]()
    for message in shown_branch(tree):
        known = cited(known, message)
        parts = with_results_at_calls(message.parts)
        blocks = tuple(block for part in parts for block in _blocks(message.role, part, known))
        used.update(number for each in blocks for number in passage_numbers(runs_of(each)))
        yield Section(_author(message), when(message.created), message.role is Role.USER, blocks)
    if used:
        notes = tuple(_note(known[number]) for number in sorted(used))
        yield Section(tr("Passages"), "", False, notes, are_notes=True)


def _note(passage: Passage) -> Paragraph:
    """The document and page of a passage, and how it begins."""
    number = Run(f"[{passage.number}]", link=passage_link(passage.number))
    words = one_line(first_words(passage, _NOTE_LENGTH))
    return Paragraph(_HERE, (number, Run(f": {one_line(place_words(passage))}: {words}")))


def one_line(text: str) -> str:
    """The text on one line, with U+FFFD for control characters, as Markdown shows them."""
    return " ".join(clean(_shown(text)).split())


def _shown(text: str) -> str:
    """The lines of a text as Markdown shows them: U+FFFD for control characters."""
    lines = Lines()
    lines.add(text, last=True)
    return "\n".join(lines.complete)


def when(seconds: float) -> str:
    """A local time as in `2026-11-27 14:05`; "" for 0 and times that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M") if seconds else ""
    except (ValueError, OverflowError, OSError):
        return ""


def _author(message: Message) -> str:
    match message.role:
        case Role.USER:
            return tr("You")
        case Role.SYSTEM:
            return tr("Instructions")
        case Role.ASSISTANT:
            return one_line(message.model) or tr("Answer")
        case Role.TOOL:
            return tr("Tool")


def _blocks(role: Role, part: Part, known: Mapping[int, Passage]) -> Sequence[Block]:
    """The blocks of a part of a message, which may refer to the `known` passages."""
    numbers = frozenset(known)
    match part:
        case TextPart(text):
            return parse(text, numbers) if role is Role.ASSISTANT else PlainText(text).blocks
        case ThoughtPart(text):
            return _quoted([_label(tr("Thoughts")), *parse(text, numbers)]) if text.strip() else ()
        case ToolCallPart(name, arguments):
            words = tr("Tool call: {name}", name=name)
            pretty = pretty_json(arguments)
            return [_label(words), *([_code(escaped(pretty), "json")] if pretty else ())]
        case ToolResultPart(name, text):
            words = (
                tr("Result of the tool: {name}", name=name) if name else tr("Result of the tool")
            )
            words = tr("{words} · {more}", words=words, more=result_words(part))
            shown, language = result_and_language(text)
            code = [_code(shown, language)] if text.strip() else []
            more = filter(None, (cut_sentence(part), left_out_sentence(part)))
            files = [_kept_file(file) for file in part.files]
            return [_label(words), *code, *map(_label, more), *files]
        case FilePart(name, text):
            words = tr("Attached: {name}", name=name) if name else tr("Attached text")
            return [_label(words), _code(text)]
        case PassagesPart(passages):
            read = [each for each in passages if not each.struck]
            return [_label(f"[{each.number}] {place_words(each)}") for each in read]
        case SectionPart(text):
            return _quoted([_label(section_words(part)), *parse(text)])
        case TablePart():
            notes = " ".join(result_notes(part))
            words = [_label(each) for each in (table_words(part), notes) if one_line(each)]
            return _quoted([*words, *parse(result_text(part))])
        case ImagePart():
            return [_picture(part)]
        case ErrorPart():
            return [_label(tr("This answer failed."))]


def _picture(image: ImagePart) -> PictureLabel:
    words = tr("Picture: {name}", name=image.name) if image.name else tr("Picture")
    if image.description:
        words = tr("{words} · {more}", words=words, more=image.description)
    return PictureLabel(_HERE, _label(words).runs, image)


def _kept_file(file: KeptFile) -> Paragraph:
    """A file that a tool returned: a picture, or the name and size of another one."""
    if (image := file.image) is not None:
        return _picture(image)
    return _label(tr("File: {name}, {size}", name=file.name, size=size(file.size_bytes)))


def _label(words: str) -> Paragraph:
    return Paragraph(_HERE, (Run(one_line(words), italic=True),))


def _code(text: str, language: str = "") -> Code:
    return Code(_HERE, language, clean_code(_shown(text)), True)


def _quoted(blocks: Sequence[Block]) -> list[Block]:
    """The blocks in a quote."""
    return [
        replace(block, place=replace(block.place, path=(Level(True, n == 0), *block.place.path)))
        for n, block in enumerate(blocks)
    ]
