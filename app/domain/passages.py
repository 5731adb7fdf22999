"""Passages in a branch of a chat: their numbers, and the words to search for a question."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from app.domain.documents import PageStart, Passage
from app.domain.message import Message
from app.domain.parts import (
    FilePart,
    Part,
    Parts,
    PassagesPart,
    attachments,
    files,
    prompt_text,
    typed_text,
)
from engine import Role

_LONGEST = 2000  # characters of a text that is searched
_FEW, _ONLY = 6, 2  # content words: a question with fewer may refer to the one before, or does
_TABLE_RULE = re.compile(r"^[ \t]*\|[ \t|:-]+$", re.MULTILINE)
_CELL_EDGE = re.compile(r"[ \t]*\|[ \t\n|]*")
_WORD = re.compile(r"\w+")
# Words that say nothing of what is asked, in the languages most often written.
_FUNCTION_WORDS = (
    "a about also an and any are as at be but by can could did do does for from had has have how i if"
    " in is it its just me my of ok on one or our please same so tell thank thanks that the their them then"
    " there these they this those to too was we were what when where which who whom whose why will"
    " with would yes no you your"
    " aber als am an auch auf aus bei bitte da das dem den der des die dies diese dieser du ein eine"
    " er es für hat ich im in ist ja man mein mir mit nach noch nun nur oder sie sind so und vom von"
    " war warum was welche wer wie wo zu zum zur"
    " au aussi avec ce ces cette comment dans de des du elle en est et il la le les leur lui mais où"
    " ou par pas pour pourquoi que quel quelle qui quoi sa se ses son sur un une"
    " al como con cual cuando de del donde el ella en es eso esta este la las lo los o para pero por"
    " que se si su un una y"
)
# Words that refer to something said before.
_REFERRING_WORDS = (
    "another else he her him his it its more other others she same that their them then these they"
    " this those"
    " andere anderen das dem den dessen deren dies diese dieser er es ihr ihre mehr sie weitere"
    " autre autres ce cela celle celui ces cette elle elles il ils leur"
    " ella ellas ellos ese eso esta este otra otro su sus"
)
_FUNCTION = frozenset(_FUNCTION_WORDS.split())
_REFERRING = frozenset(_REFERRING_WORDS.split())
# How a question begins that goes on with the one before.
_GOES_ON = re.compile(
    r"\W*(?:and|or|but|also|(?:what|how) about|und|oder|aber|auch|was ist mit|wie ist es mit"
    r"|et|ou|mais|qu.en est-il|y|o|pero)\b",
    re.IGNORECASE,
)
_WIDE_REFERRING = re.compile("[他她它这那這彼其]|それ|これ|그")


def document_key(part: FilePart) -> str:
    """The key of a file in the index: the SHA-256 of its bytes or, without them, of its text."""
    return part.sha256 or _text_key(part.text)


@lru_cache(maxsize=8)
def _text_key(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def passages_part(parts: Iterable[Part]) -> PassagesPart | None:
    """What was found for a question; None: nothing was searched."""
    return next((part for part in parts if isinstance(part, PassagesPart)), None)


def with_passages(parts: Parts, found: PassagesPart | None) -> Parts:
    """The parts of a question with these passages: behind the files, before the typed text."""
    kept = [part for part in parts if not isinstance(part, PassagesPart)]
    attached = attachments(kept)
    at = next((n for n, part in enumerate(kept) if part not in attached), len(kept))
    return tuple(kept) if found is None else (*kept[:at], found, *kept[at:])


def toggled(part: PassagesPart, number: int) -> PassagesPart:
    """With a passage struck out, or used again, once the question is sent again."""
    made = (
        replace(each, toggled=not each.toggled) if each.number == number else each
        for each in part.passages
    )
    return replace(part, passages=tuple(made))


def to_send_again(part: PassagesPart) -> PassagesPart:
    """As it is sent again: without the passages that the user has struck out since."""
    made = (
        replace(each, struck=each.struck is not each.toggled, toggled=False)
        for each in part.passages
    )
    return replace(part, passages=tuple(made))


def read_passages(parts: Iterable[Part]) -> tuple[Passage, ...]:
    """The passages that the model reads with a question."""
    part = passages_part(parts)
    return tuple(each for each in part.passages if not each.struck) if part else ()


def passage_file(passage: Passage, branch: Iterable[Message]) -> tuple[FilePart, int, int]:
    """The document of a passage and the characters of the passage in it.

    Of a document that no message of the branch has, only the passage itself is known.
    """
    for message in branch:
        for part in files(message.parts):
            text = part.text[passage.start : passage.end]
            if text and document_key(part) == passage.sha256:
                return part, passage.start, passage.end
    unit, pages = passage.unit, (PageStart(passage.page, 0),) if passage.unit else ()
    return FilePart(passage.name, passage.text, "", "", unit, pages), 0, len(passage.text)


def numbered(found: Sequence[Passage], before: Sequence[Message]) -> tuple[Passage, ...]:
    """Passages with their numbers, for a question after these messages.

    One that the model reads with an earlier question keeps its number there; the others are
    numbered on. The pinned ones of earlier questions come first.
    """
    known: dict[tuple[str, str, int, int], Passage] = {}
    highest = 0
    for message in before:
        part = passages_part(message.parts)
        for each in part.passages if part else ():
            highest = max(highest, each.number)
            if not each.struck:
                known[place(each)] = each
            elif known.get(place(each)):
                del known[place(each)]
    pinned = [each for each in known.values() if each.pinned]
    made = [replace(each, above=True, toggled=False) for each in pinned]
    for each in found:
        if earlier := known.get(place(each)):
            if not earlier.pinned:
                made.append(replace(earlier, score=each.score, above=True, toggled=False))
        else:
            highest += 1
            made.append(replace(each, number=highest))
    return tuple(made)


def place(passage: Passage) -> tuple[str, str, int, int]:
    """Where a passage is: its document, and the characters there."""
    return passage.sha256, passage.path, passage.start, passage.end


def cited(before: Mapping[int, Passage], message: Message) -> Mapping[int, Passage]:
    """The passages by number that an answer after a message may refer to.

    `before` are those of the messages before it, and returned as they are if it has none.
    """
    if message.role is not Role.USER or not (found := read_passages(message.parts)):
        return before
    return {**before, **{each.number: each for each in found}}


def as_read(messages: Sequence[Message]) -> Sequence[Message]:
    """The branch with the passages that the model is to read, each with one question.

    One that was struck out at a later question is read with none; one whose earlier question was
    deleted is read with the next that has it.
    """
    parts = [passages_part(each.parts) for each in messages]
    struck, seen = set[int](), set[int]()
    for part in parts:
        struck |= (
            {each.number for each in part.passages if each.struck and each.above} if part else set()
        )
    made = list(messages)
    for at, part in enumerate(parts):
        if part is None:
            continue
        read = tuple(
            replace(each, above=each.number in seen)
            for each in part.passages
            if not each.struck and each.number not in struck
        )
        seen |= {each.number for each in read}
        if read != part.passages:
            own = with_passages(messages[at].parts, replace(part, passages=read))
            made[at] = replace(messages[at], parts=own)
    return made


def without_old(messages: Sequence[Message], surplus: int) -> tuple[list[Message], frozenset[int]]:
    """The branch without passages of earlier questions, and the ids of these questions.

    The oldest are the first to go, until the prompt is `surplus` bytes shorter. Those that the last
    question has too, such as pinned ones, are read with it instead.
    """
    made, left_out = list(messages), set[int]()
    *earlier, last = [at for at, each in enumerate(made) if each.role is Role.USER] or [-1]
    for at in earlier:
        if surplus <= 0:
            break
        if not (read := read_passages(made[at].parts)):
            continue
        before = text_bytes(made[at]) + text_bytes(made[last])
        numbers = {each.number for each in read}
        made[at] = _with(made[at], ())
        moved = (
            replace(each, above=each.above and each.number not in numbers)
            for each in read_passages(made[last].parts)
        )
        made[last] = _with(made[last], tuple(moved))
        surplus -= before - text_bytes(made[at]) - text_bytes(made[last])
        left_out.add(messages[at].id)
    return made, frozenset(left_out)


def _with(message: Message, passages: tuple[Passage, ...]) -> Message:
    part = passages_part(message.parts)
    found = replace(part, passages=passages) if part else None
    return replace(message, parts=with_passages(message.parts, found))


def text_bytes(message: Message) -> int:
    """Bytes of a message in a prompt."""
    return len(prompt_text(message.parts).encode("utf-8", "replace"))


def first_words(passage: Passage, length: int) -> str:
    """How a passage begins, on one line, without the lines of a table."""
    text = _TABLE_RULE.sub("", passage.text[: 4 * length])
    words = " ".join(_CELL_EDGE.sub(" · ", text).split()).strip("· ")
    if len(words) <= length:
        return words
    cut = words[:length]
    return f"{(cut.rpartition(' ')[0] or cut).rstrip(' ,;:·')}…"


def cited_at(branch: Iterable[Message], message_id: int) -> Mapping[int, Passage]:
    """The passages by number that a message of a branch may refer to."""
    known: Mapping[int, Passage] = {}
    for message in branch:
        if message.id == message_id:
            break
        known = cited(known, message)
    return known


def searched_words(question: Message, before: Sequence[Message]) -> str:
    """What is searched for a question: its words and, if it refers to one before, those too.

    A question refers to the one before if it has hardly a word of its own ("and the second one?"),
    or few and a word that refers ("who signed it?") or goes on ("what about a service?").
    """
    text = typed_text(question.parts).strip()[:_LONGEST]
    words = [word.casefold() for word in _WORD.findall(text)]
    content = sum(_weight(word) for word in words if word not in _FUNCTION)
    refers = any(word in _REFERRING for word in words) or _GOES_ON.match(text)
    refers = refers or _WIDE_REFERRING.search(text)
    if content >= (_FEW if refers else _ONLY):
        return text
    for message in reversed(before):
        if message.role is Role.USER and (earlier := typed_text(message.parts).strip()):
            part = passages_part(message.parts)
            earlier = (part.searched if part else "") or earlier
            return f"{earlier[:_LONGEST]}\n{text}" if earlier != text else text
    return text


def _weight(word: str) -> int:
    """How many words a word is: languages without spaces have two letters to a word."""
    return 1 if word[0] < "\u2e80" else (len(word) + 1) // 2
