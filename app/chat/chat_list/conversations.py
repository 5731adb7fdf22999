"""The list of conversations: create, copy, rename and search."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.domain.chat import Conversation, Hit
from app.domain.chat_settings import ChatSettings, settings_text
from app.domain.greetings import topic
from app.domain.ids import new_id
from app.domain.parts import FilePart, Parts, attachments, typed_text
from app.markdown.blocks import Paragraph
from app.markdown.stream import PlainText
from app.state.chat import State
from app.store.store import Store
from app.store.writer import StoreQueue

_HITS = 200  # search results whose words are shown
_TITLE_LENGTH = 60
_TITLE_SOURCE = 4000  # characters of the first message that the title is taken from
_CONTROLS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), " ")
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Conversations:
    """Changes the list in the state at once, and in the store afterwards."""

    def __init__(self, state: State, store_queue: StoreQueue) -> None:
        self._state = state
        self._store_queue = store_queue
        self._made: set[int] = set()  # in this run, so that they may not be stored yet
        self._latest_query = ""  # `State.query` is the one whose results are shown

    def read(self) -> None:
        """Read the list from the store; conversations not stored yet stay in it."""
        before = self._state.conversations

        def listed(conversations: list[Conversation]) -> None:
            if self._state.conversations is not before:  # changed meanwhile: the state is newer
                self.read()
                return
            known = {conversation.id for conversation in conversations}
            gone = self._state.deleted
            kept = [c for c in conversations if c.id not in gone]
            unsaved = [
                c for c in self._state.conversations if c.id in self._made and c.id not in known
            ]
            self._state.set_conversations([*unsaved, *kept])

        self._store_queue.read(lambda store: store.conversations(), listed)

    def begin(self, parts: Parts, settings: ChatSettings, folder: int | None = None) -> int:
        """Create a conversation, titled after its first message; returns its id."""
        number, title, now = new_id(), title_of(parts), time.time()
        text = settings_text(settings)

        def create(store: Store) -> None:
            store.create_conversation(title, text, id=number, folder=folder)

        self._store_queue.write(create)
        self._list(Conversation(number, title, now, now, None, settings, folder))
        return number

    def copy(self, conversation_id: int, title: str, until: int | None = None) -> int | None:
        """Copy a stored conversation, or its branch up to a message; returns the new id.

        None if there is no such conversation.
        """
        source = self._state.conversation(conversation_id)
        if source is None:
            return None
        number, now = new_id(), time.time()
        made = replace(
            source, id=number, title=title, created=now, updated=now, branch_tip=None,
            pinned=False, archived=False,
        )  # fmt: skip
        self._store_queue.write(lambda store: store.copy_conversation(source.id, made, until))
        self._list(made)
        return number

    def _list(self, made: Conversation) -> None:
        """Add a conversation of this run to the list."""
        self._made.add(made.id)
        self._state.set_conversations([made, *self._state.conversations])

    def rename(self, conversation_id: int, title: str) -> None:
        """Give a conversation another title; an empty one changes nothing."""
        title = one_line(title)
        if not title:
            return
        self._state.change_conversation(conversation_id, title=title)
        self._store_queue.write(lambda store: store.rename(conversation_id, title), title)

    def remove(self, ids: Sequence[int]) -> None:
        """Remove conversations from the list and the search results, not from the store."""
        state = self._state
        state.set_conversations([c for c in state.conversations if c.id not in ids])
        state.set_found(state.query, [c for c in state.found if c.id not in ids])

    def search(self, query: str) -> None:
        """List the conversations that contain the query's words; an empty query lists all."""
        query = query.strip()
        self._latest_query = query
        if not query:
            self._state.set_found("", ())
            return

        def search(store: Store) -> tuple[list[Conversation], dict[int, Hit]] | None:
            if self._latest_query != query:  # a newer query is queued: skip this one
                return None
            stored = store.conversations(query)
            return stored, store.hits(query, [each.id for each in stored[:_HITS]])

        def found(results: tuple[list[Conversation], dict[int, Hit]] | None) -> None:
            if results is not None and self._latest_query == query:
                self._state.set_found(query, *results)

        self._store_queue.read(search, found)


def one_line(text: str) -> str:
    """Text on one line for a list row: no control or bidi characters, spaces collapsed."""
    shown = (
        " " if unicodedata.category(letter) == "Cc" else letter
        for letter in text
        if letter not in _BIDI_CONTROLS
    )
    return " ".join("".join(shown).split())


def title_of(parts: Parts) -> str:
    """Title of a conversation: the first sentence of its first message, not of what was pasted.

    Greetings and polite openings are left out, unless there is nothing else.
    """
    return shortened(
        next((found for text in _title_sources(parts) if (found := one_line(text))), "")
    )


def shortened(words: str) -> str:
    """Text on one line as a title, cut between two words where it is too long."""
    if len(words) <= _TITLE_LENGTH:
        return words
    cut = words.rfind(" ", _TITLE_LENGTH * 2 // 3, _TITLE_LENGTH + 1)
    if cut < 0:  # a script without spaces
        cut = _TITLE_LENGTH
        while cut > 1 and _continues(words, cut):
            cut -= 1
    return f"{words[:cut]}…"


def _title_sources(parts: Parts) -> Iterator[str]:
    """The typed text without code, the whole typed text, and each attachment's name and text."""
    text = typed_text(parts)
    own = PlainText(text[:_TITLE_SOURCE].translate(_CONTROLS))  # else it shows U+FFFD for them
    places = [block.place for block in own.blocks if isinstance(block, Paragraph)]
    prose = "\n".join(own.source(place.start, place.end) for place in places)
    yield topic(prose)
    yield text
    for part in attachments(parts):
        yield part.name
        if isinstance(part, FilePart):
            yield part.text[:_TITLE_SOURCE]
            yield part.text


def _continues(text: str, at: int) -> bool:
    """Whether the character at a place belongs to the one before: a mark, or a joined emoji."""
    letter = text[at]
    modifier = "\U0001f3fb" <= letter <= "\U0001f3ff"
    joined = "\u200d" in (letter, text[at - 1])
    return joined or modifier or unicodedata.category(letter).startswith("M")
