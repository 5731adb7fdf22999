"""Retrieval: the passages of a chat's documents that fit a question, found before it is answered.

A question is shown and stored at once, and its answer waits until its passages are in it. What was
found is part of the message: the same passages are read again with every later question, so that
the cached context stays of use. After a crash the question has no passages yet, and they are looked
for when it is asked again.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from app.chat.documents.indexing import SearchResult
from app.chat.requests.context_room import answer_room, bytes_per_token, context_of
from app.domain.documents import FoundPassage, PageUnit, Passage, Reads, SearchFault
from app.domain.message import Message
from app.domain.parts import FilePart, Parts, PassagesPart, typed_text
from app.domain.passages import (
    document_key,
    numbered,
    passages_part,
    place,
    searched_words,
    text_bytes,
    to_send_again,
    toggled,
    with_passages,
    without_old,
)
from app.state.chat import Notice, State
from app.state.faults import explain
from app.store.writer import StoreQueue
from engine import Role

FEWEST, MOST = 3, 12  # passages of a question, if so many are found
NOTICE = "passages"  # kind of the notice that no more could be looked for
DEEPEST = 32  # the most that "More passages" leads to
_STEP = 6  # passages that "More passages" adds
_USUAL = 6  # passages, where the room of the model is not known
_LEAST = 0.3  # of the score of the best passage that one has which is read with it
_SHARE = 3  # one part of so many of the free context is for passages
_log = logging.getLogger(__name__)

Ended = Callable[[SearchFault | None], None]


# Searches documents with these keys for a question; calls later, on the GUI thread.
Search = Callable[[str, Sequence[str], Callable[[SearchResult], None], int], None]
Read = Callable[[FoundPassage], Passage | None]  # None: it is of another document


class Documents(Protocol):
    """Documents that a chat is answered from, such as its attached files, or a collection."""

    def keys(self, conversation: int, branch: Sequence[Message]) -> Iterable[str]:
        """The keys of those that are searched for the questions of a branch."""
        ...

    def reader(self, conversation: int, branch: Sequence[Message]) -> Read:
        """What makes passages, without numbers, of what was found for a question of a branch."""
        ...

    def unread(self, conversation: int) -> int:
        """How many documents there are without a key yet, as their texts are not extracted."""
        ...

    def when_read(self, conversation: int, then: Callable[[], None]) -> None:
        """Call `then` when those are read, or at once if that takes long."""
        ...


class AttachedFiles:
    """The files of a branch of which the model reads the passages that fit."""

    def keys(self, conversation: int, branch: Sequence[Message]) -> Iterable[str]:
        """The keys of those that are searched for the questions of a branch."""
        del conversation
        return self._files(branch)

    def reader(self, conversation: int, branch: Sequence[Message]) -> Read:
        """What makes passages of what was found in these files."""
        del conversation
        files = self._files(branch)
        return lambda found: _passage(files[found.key], found) if found.key in files else None

    def unread(self, conversation: int) -> int:
        """None: a file is read before it is sent."""
        del conversation
        return 0

    def when_read(self, conversation: int, then: Callable[[], None]) -> None:
        """At once."""
        del conversation
        then()

    @staticmethod
    def _files(branch: Sequence[Message]) -> Mapping[str, FilePart]:
        return {
            document_key(part): part
            for message in branch
            for part in message.parts
            if isinstance(part, FilePart) and part.reads is Reads.PASSAGES
        }


def _passage(part: FilePart, found: FoundPassage) -> Passage:
    """A passage of a file."""
    at = bisect_right(part.pages, found.start, key=lambda page: page.start) - 1
    page = part.pages[at].label if at >= 0 else ""
    return passage_of(found, part.text[found.start : found.end], part.name, page, part.unit)


def passage_of(found: FoundPassage, inside: str, name: str, page: str, unit: PageUnit) -> Passage:
    """The passage with this text of a document, with what is above it there."""
    above = " > ".join(each for each in found.headings.split(" > ") if each not in inside)
    return Passage(
        0,
        name,
        "\n".join(filter(None, (above, found.table_head, inside))),
        page=page,
        unit=unit,
        sha256=found.key,
        start=found.start,
        end=found.end,
        score=found.score,
    )


class Retrieval:
    """Finds the passages of questions, and puts them into the state and the store."""

    def __init__(
        self,
        state: State,
        store_queue: StoreQueue,
        edit: Callable[[int, Parts], bool],
        go_on: Callable[[int], None],
        search: Search | None = None,
    ) -> None:
        """`edit` sends a question of the shown branch with other parts, as another version of it,
        if it can be sent now; `go_on` lets an answer be written that has not begun.
        """
        self._state, self._store_queue = state, store_queue
        self.search = search  # None: nothing can be searched
        self._edit, self._go_on = edit, go_on
        self.documents: list[Documents] = [AttachedFiles()]  # of all kinds
        self._searching: dict[int, list[Ended]] = {}  # by question
        self._changed: dict[int, PassagesPart] = {}  # by question, of those changed in this run

    def find(self, branch: Sequence[Message], ended: Ended) -> bool:
        """Find the passages of the last question of a branch, and put them into it.

        `ended` is called later, with the fault if there is one. False, and nothing is done, if the
        question has its passages, or needs none.
        """
        question = next((each for each in reversed(branch) if each.role is Role.USER), None)
        if question is None or passages_part(question.parts) is not None:
            return False
        branch = self._to(question.id, branch)
        conversation = question.conversation
        if not self._keys(conversation, branch) and not self._unread(conversation):
            return False
        waiting = self._searching.setdefault(question.id, [])
        waiting.append(ended)
        if len(waiting) == 1:
            self._look(
                question,
                branch,
                lambda passages: self._fitting(branch, passages),
                lambda part: self._found(question, part),
            )
        return True

    def look_up(
        self,
        conversation: int,
        words: str,
        most: int,
        then: Callable[[Sequence[Passage] | SearchFault | None], None],
    ) -> None:
        """Search the documents of a chat; `then` gets at most so many passages, None: it has none."""
        branch = self._state.branches.get(conversation, ())

        def found(result: SearchResult) -> None:
            if result.fault:
                then(SearchFault(result.fault))
            else:
                then(self._passages(conversation, branch, result.found)[:most])

        def search() -> None:
            keys = self._keys(conversation, branch)
            if not keys and not self._unread(conversation):
                then(None)
            elif self.search is None:
                then(SearchFault("no index"))
            else:
                self.search(words, keys, found, DEEPEST)

        for each in self.documents:
            search = partial(each.when_read, conversation, search)
        search()

    def answer_with(self, message_id: int, part: PassagesPart) -> None:
        """Answer a question of the shown branch again, with these passages but those struck out."""
        question = self._state.message(message_id)
        if question is None or not self._edit(
            message_id, with_passages(question.parts, to_send_again(part))
        ):
            return
        if had := passages_part(question.parts):  # what was struck out is in the new version now
            kept = tuple(replace(each, toggled=False) for each in had.passages)
            if kept != had.passages:
                self.set_part(question, replace(had, passages=kept))

    def answer_with_more(self, message_id: int) -> None:
        """Answer a question of the shown branch again, with more passages than it has."""
        question = self._state.message(message_id)
        if question is None or self._state.busy:
            return
        had = passages_part(question.parts) or PassagesPart()
        known = {place(each) for each in had.passages}
        first_number = max((each.number for each in had.passages), default=0) + 1
        self._state.set_notice(NOTICE, None)

        def found(part: PassagesPart | SearchFault) -> None:
            if isinstance(part, SearchFault):
                shown = explain(part, "", "")
                self._state.set_notice(NOTICE, Notice(shown.sentence, "", detail=shown.detail))
                return
            new = [each for each in part.passages if place(each) not in known]
            added = (
                each if each.above else replace(each, number=first_number + n)
                for n, each in enumerate(new)
            )
            more = replace(part, passages=(*had.passages, *added))
            self.answer_with(message_id, more)

        most = min(len(had.passages) + _STEP, DEEPEST)
        branch = self._to(question.id, self._state.messages)
        self._look(question, branch, lambda _: most, found)

    def answer_without(self, message_id: int) -> None:
        """Let an answer of the shown branch be written whose passages could not be found."""
        before = self._to(message_id, self._state.messages)
        asked = next((each for each in reversed(before) if each.role is Role.USER), None)
        if asked is not None and not self._state.busy:
            self.set_part(asked, PassagesPart(skipped=True))
            self._go_on(message_id)

    def toggle(self, message_id: int, number: int) -> None:
        """Strike a passage of a question out, or use it again, once it is sent again."""
        question = self._state.message(message_id)
        if question is not None and (part := passages_part(question.parts)):
            self.set_part(question, toggled(part, number))
            self._store_queue.settle()

    def pin(self, number: int, pinned: bool) -> None:
        """Keep a passage of the shown branch for the next questions too, or no longer."""
        for message in self._state.messages:
            part = passages_part(message.parts)
            if part and any(each.number == number for each in part.passages):
                made = tuple(
                    replace(each, pinned=pinned) if each.number == number else each
                    for each in part.passages
                )
                self.set_part(message, replace(part, passages=made))
        self._store_queue.settle()

    def set_part(self, question: Message, part: PassagesPart) -> None:
        """Put passages into a question, in the state and the store."""
        now = self._state.message(question.id) or question
        parts = with_passages(now.parts, part)
        self._changed[question.id] = part
        self._store_queue.write(lambda store: store.set_parts(question.id, parts))
        if self._state.message(question.id) is not None:
            self._state.change(replace(now, parts=parts))

    def newest(self, messages: Sequence[Message]) -> list[Message]:
        """Messages read from the store, with the passages that were found since."""
        return [
            replace(each, parts=with_passages(each.parts, self._changed[each.id]))
            if each.id in self._changed
            else each
            for each in messages
        ]

    # --- steps ----------------------------------------------------------------------------------

    @staticmethod
    def _to(message_id: int, branch: Sequence[Message]) -> Sequence[Message]:
        """The branch up to a message; nothing if that is not in it."""
        at = next((n for n, each in enumerate(branch) if each.id == message_id), -1)
        return branch[: at + 1]

    def _keys(self, conversation: int, branch: Sequence[Message]) -> list[str]:
        found = (each.keys(conversation, branch) for each in self.documents)
        return list(dict.fromkeys(key for keys in found for key in keys))

    def _unread(self, conversation: int) -> int:
        return sum(each.unread(conversation) for each in self.documents)

    def _look(
        self,
        question: Message,
        branch: Sequence[Message],
        most: Callable[[Sequence[Passage]], int],
        then: Callable[[PassagesPart | SearchFault], None],
    ) -> None:
        """Search for a question, the last of a branch; `most` says how many passages it gets."""
        conversation = question.conversation
        words = searched_words(question, branch[:-1])
        unread = 0

        def found(result: SearchResult) -> None:
            if result.fault:
                then(SearchFault(result.fault))
                return
            try:
                passages = self._passages(conversation, branch, result.found)
                count = most(passages)
                made = numbered(passages[:count], branch[:-1])
            except Exception as error:  # noqa: BLE001  (the answer must not wait forever)
                _log.exception("passages cannot be made of what was found")
                then(SearchFault(str(error) or type(error).__name__))
                return
            shown = "" if words == typed_text(question.parts).strip() else words
            missing = result.missing + unread
            then(PassagesPart(made, shown, max(_worth(passages) - count, 0), missing))

        def search() -> None:
            nonlocal unread
            unread = self._unread(conversation)
            keys = self._keys(conversation, branch)
            if words and self.search is None:
                found(SearchResult((), fault="no index"))
            elif words and keys and self.search is not None:
                self.search(words, keys, found, DEEPEST)
            else:
                found(SearchResult(()))

        for each in self.documents:
            search = partial(each.when_read, conversation, search)
        search()

    def _passages(
        self, conversation: int, branch: Sequence[Message], places: Sequence[FoundPassage]
    ) -> list[Passage]:
        """The passages at places that were found, the best first."""
        readers = [each.reader(conversation, branch) for each in self.documents]
        made = (next(filter(None, (read(place) for read in readers)), None) for place in places)
        return [passage for passage in made if passage is not None]

    def _found(self, question: Message, part: PassagesPart | SearchFault) -> None:
        """Put what was found into a question, and let its answers begin."""
        if isinstance(part, PassagesPart):
            self.set_part(question, part)
        for ended in self._searching.pop(question.id, ()):
            ended(part if isinstance(part, SearchFault) else None)

    def _fitting(self, branch: Sequence[Message], passages: Sequence[Passage]) -> int:
        """How many of the passages the model of a chat has room for, the best first."""
        conversation = branch[-1].conversation
        context = context_of(self._state, conversation)
        if not context:
            return _USUAL
        size = bytes_per_token(branch)
        room = context - answer_room(context)
        whole = sum(map(text_bytes, branch))
        free = room - whole / size
        shortest, _ = without_old(branch, whole)  # old ones go for new ones
        most = room - sum(map(text_bytes, shortest)) / size
        used, count = 0.0, 0
        for passage in passages[: min(_worth(passages), MOST)]:
            used += len(passage.text.encode("utf-8", "replace")) / size
            if used > (most if count < FEWEST else free / _SHARE):
                break
            count += 1
        return max(count, 1)


def _worth(passages: Sequence[Passage]) -> int:
    """How many of the passages are worth reading, the best first: not those that hardly fit."""
    best = passages[0].score if passages else 0.0
    return max(sum(each.score >= _LEAST * best for each in passages), min(len(passages), FEWEST))
