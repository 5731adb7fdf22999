"""Thoughts in an answer: the markers that a model writes around them, and where a text has some."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from engine.messages.values import THOUGHT_ENDS, THOUGHT_OPENS

Message = dict[str, Any]  # of a chat template

_OPENINGS = re.compile(rf"(?:\s*{THOUGHT_OPENS})+")
_TAG = re.compile(f"{THOUGHT_OPENS}|{THOUGHT_ENDS}")
_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})", re.MULTILINE)

BLOCKS = "blocks"  # instead of a field: the content is a list, and thoughts are blocks of it


@dataclass(frozen=True, slots=True)
class ThoughtMarkers:
    """How a model writes thoughts: `opens`, thoughts, `closing`, answer."""

    opens: str = THOUGHT_OPENS  # without white space around it
    ends: str = THOUGHT_ENDS  # without white space, and with the header of the answer's message
    closing: str = f"\n{THOUGHT_ENDS}\n\n"  # `ends` as the template writes it
    header: str = ""  # of the answer's message, which also begins an answer without thoughts
    again: str = ""  # ends a message of thoughts where another one follows
    field: str = ""  # of a message, where the template expects its thoughts; "": nowhere
    can_think: bool = False  # the template knows thoughts

    @property
    def are_usual(self) -> bool:
        """Whether the model writes the tags that are used in events."""
        return (self.opens, self.ends, self.header) == (THOUGHT_OPENS, THOUGHT_ENDS, "")

    @property
    def opening_text(self) -> str:
        """What begins thoughts in a prompt; "" where the template does not know thoughts."""
        space = "\n" if self.closing.startswith("\n") else ""
        return self.opens + space if self.can_think else ""

    def written(self, text: str) -> str:
        """An answer, whose thoughts are between the usual tags, as the model writes it."""
        if self.are_usual:
            return text
        first, *rest = split_answer(text) or [AnswerPiece("")]
        if not first.opens:
            return self.header + text
        space = first.opens[: len(first.opens) - len(first.opens.lstrip())]
        answer = "".join(piece.written for piece in rest)
        return space + self.opens + first.text + (self.ends if first.ends else "") + answer

    def opening(self, prompt: str) -> str:
        """The end of a rendered prompt that begins the answer's thoughts; usually ""."""
        stripped = prompt.rstrip()
        return prompt[len(stripped) - len(self.opens) :] if stripped.endswith(self.opens) else ""

    def with_thoughts(self, message: Message, thoughts: str) -> Message:
        """A message of an answer with its thoughts where the template expects them."""
        if self.field == BLOCKS:
            return {**message, "content": thought_blocks(thoughts, message["content"])}
        message = {**message, "reasoning_content": thoughts}
        return message | {self.field: thoughts} if self.field else message


def thought_blocks(thoughts: str, answer: str) -> list[dict[str, str]]:
    """The content of a message as a list of blocks."""
    return [{"type": "thinking", "thinking": thoughts}, {"type": "text", "text": answer}]


def resolved_thinking(thinking: bool | None, budget: int | None) -> tuple[bool | None, int | None]:
    """The switch and the budget of thoughts that a request means: a budget of 0 is none."""
    if thinking is False or budget == 0:
        return False, 0
    return (True if budget else thinking), budget


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """A thought or a text in an answer."""

    text: str
    is_thought: bool = False
    opens: str = ""  # of a thought: the tag before it, with the white space before the first one
    ends: str = ""  # of a thought: the tag after it; "" while it has not ended

    @property
    def written(self) -> str:
        """The characters of the answer."""
        return self.opens + self.text + self.ends


def split_answer(text: str) -> list[AnswerPiece]:
    """The thoughts and texts of an answer, which has the usual tags; joined they are the answer.

    Thoughts begin with the answer, or later on a line of their own if they end too. A tag in code is
    none. A lone tag that ends thoughts makes what is before it a thought, or is dropped from the
    text if there was a thought before.
    """
    pieces: list[AnswerPiece] = []
    place = at = _thought(text, 0, pieces)  # of what is not in a piece yet
    while text.find("think>", place) >= 0 and (match := _TAG.search(text, place)):
        place = match.end()
        before = text[at : match.start()]
        line = before.rpartition("\n")[2]
        if _in_code(before, text[place:]):
            continue
        if match[0] == THOUGHT_OPENS:
            if not line.strip() and _end_of(text, place) is not None:
                if before:
                    pieces.append(AnswerPiece(before))
                at = place = _thought(text, match.start(), pieces)
        elif text[place : place + 1] in ("", "\n") and (not pieces or not line.strip()):
            if pieces and before:
                pieces.append(AnswerPiece(before))
            pieces.append(AnswerPiece("" if len(pieces) else before, True, "", THOUGHT_ENDS))
            at = place
    if at < len(text):
        pieces.append(AnswerPiece(text[at:]))
    return pieces


def _thought(text: str, start: int, pieces: list[AnswerPiece]) -> int:
    """Add the thought that begins at `start`, if one does; returns its end."""
    opens = _OPENINGS.match(text, start)
    if opens is None:
        return start
    begin = opens.end()
    end = _end_of(text, begin)
    ends = "" if end is None else THOUGHT_ENDS
    end = len(text) if end is None else end
    pieces.append(AnswerPiece(text[begin:end], True, opens[0], ends))
    return end + len(ends)


def _end_of(text: str, begin: int) -> int | None:
    """The place of the tag that ends a thought."""
    for match in re.compile(THOUGHT_ENDS).finditer(text, begin):
        if ends_thought(text[begin : match.start()], text[match.end() :]):
            return match.start()
    return None


def ends_thought(before: str, after: str) -> bool:
    """Whether the tag between two parts of a thought ends it: it is not in code.

    In a block of code, which may have been left open, one at the start of a line ends it too.
    """
    return not before.rpartition("\n")[2].strip() or not _in_code(before, after)


def _in_code(before: str, after: str) -> bool:
    """Whether a tag between two texts is in a block of code, or in code in its line."""
    fence = ""
    for match in _FENCE.finditer(before):
        if not fence:
            fence = match[1]
        elif match[1].startswith(fence):
            fence = ""
    return bool(fence) or (is_code_open(before) and "`" in after.partition("\n")[0])


def is_code_open(text: str) -> bool:
    """Whether a text ends in code in a line, if a backtick follows in that line."""
    return text.rpartition("\n")[2].count("`") % 2 == 1
