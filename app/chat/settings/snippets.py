"""Saved prompts: read, saved, changed, deleted and restored, in the state and in the store."""

from __future__ import annotations

import time
from dataclasses import replace

from app.domain.greetings import topic
from app.domain.ids import new_id
from app.domain.snippet import Snippet
from app.state.snippets import SnippetState
from app.store.store import Store
from app.store.writer import StoreQueue

_NAME_LENGTH = 60


class Snippets:
    """Changes the saved prompts."""

    def __init__(self, state: SnippetState, store_queue: StoreQueue) -> None:
        self._state, self._store_queue = state, store_queue

    def read(self) -> None:
        """Read them from the store; those saved meanwhile stay."""

        def found(stored: list[Snippet]) -> None:
            own = {each.id for each in self._state.snippets}
            self._state.set([*self._state.snippets, *(s for s in stored if s.id not in own)])

        self._store_queue.read(Store.snippets, found)

    def add(self, text: str) -> None:
        """Save a text as a prompt, named by its first sentence; one saved before changes nothing."""
        if not text.strip() or any(each.text == text for each in self._state.snippets):
            return
        name = " ".join((topic(text) or text).split())
        short = name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1].rstrip()}…"
        made = Snippet(new_id(), short, text, time.time())
        self._state.set([*self._state.snippets, made])
        self._write(made)

    def change(self, snippet_id: int, name: str, text: str) -> None:
        """Give a prompt another name and text; an empty one of them stays as it was."""
        old = next((each for each in self._state.snippets if each.id == snippet_id), None)
        if old is None:
            return
        name = " ".join(name.split()) or old.name
        new = replace(old, name=name, text=text if text.strip() else old.text)
        if new != old:
            rest = [each for each in self._state.snippets if each is not old]
            self._state.set([*rest, new], self._state.deleted)
            self._write(new)

    def delete(self, snippet_id: int) -> None:
        """Delete a prompt, which can be restored until the next one is deleted."""
        gone = next((each for each in self._state.snippets if each.id == snippet_id), None)
        if gone is not None:
            self._state.set([each for each in self._state.snippets if each is not gone], gone)
            self._store_queue.write(lambda store: store.delete_snippet(gone.id))

    def restore(self) -> None:
        """Restore the prompt that was deleted last."""
        if (gone := self._state.deleted) is not None:
            self._state.set([*self._state.snippets, gone])
            self._write(gone)

    def write_all(self) -> None:
        """Write all of them, after a repair of the store."""
        for each in self._state.snippets:
            self._write(each)

    def _write(self, snippet: Snippet) -> None:
        self._store_queue.write(lambda store: store.write_snippet(snippet), snippet.text)
