"""Which conversation and which branch of it is shown: open, search results, sibling answers."""

from __future__ import annotations

from collections.abc import Callable

from app.chat.answering.answers import Answers
from app.chat.sending.drafts import UnsentText
from app.domain.unsent import Unsent
from app.state.chat import State
from app.store.store import Store, StoredBranch
from app.store.writer import StoreQueue


class Navigation:
    """Shows conversations; one not opened before is read from the store first."""

    def __init__(
        self, state: State, store_queue: StoreQueue, answers: Answers, drafts: UnsentText
    ) -> None:
        self._state = state
        self._store_queue = store_queue
        self._answers = answers
        self._drafts = drafts
        self._opening: int | None = None  # the conversation that was asked for last

    def new(self) -> None:
        """Show a new chat."""
        self._opening = None
        self._state.show(None)

    def stop_opening(self) -> None:
        """Do not show the conversation that is being read."""
        self._opening = None

    def show(self, conversation_id: int | None) -> None:
        """Show a conversation; None is the new chat."""
        if conversation_id is None:
            self.new()
        else:
            self.open(conversation_id)

    def open(self, conversation_id: int, then: Callable[[], None] | None = None) -> None:
        """Show a conversation; `then` is called when it is shown."""
        self._opening = conversation_id
        if conversation_id in self._state.branches:
            if conversation_id != self._state.current:
                self._state.show(conversation_id)
            if then is not None:
                then()
            return

        def read(store: Store) -> tuple[StoredBranch, Unsent]:
            branch = store.with_others(store.branch(conversation_id))
            return branch, store.draft(conversation_id)

        def shown(result: tuple[StoredBranch, Unsent]) -> None:
            if self._opening != conversation_id:
                return
            if conversation_id not in self._state.branches:
                self._drafts.found(conversation_id, result[1])
                self._state.show(conversation_id, *result[0])
                if then is not None:
                    then()
            else:  # opened twice: the first read has filled it
                self.open(conversation_id, then)

        self._store_queue.read(read, shown)

    def open_found(self, conversation_id: int, query: str) -> None:
        """Open a search result at its best message, in its branch, with the words found."""
        store_queue, state = self._store_queue, self._state

        def hit(store: Store) -> int | None:
            found = store.hits(query, [conversation_id]).get(conversation_id)
            return found.message if found else None

        def reveal(message_id: int) -> None:
            shown = [message.id for message in state.messages]
            if shown and state.current == conversation_id:
                state.found_opened.emit(query, message_id if message_id in shown else shown[0])

        def opened(message_id: int | None) -> None:
            if message_id is None or state.current != conversation_id:
                return  # only its title fits, or another one was opened meanwhile
            if state.busy or any(message.id == message_id for message in state.messages):
                reveal(message_id)  # an answer that is being written keeps its branch
                return

            def select(store: Store) -> StoredBranch:
                return store.with_others(store.show_branch(conversation_id, message_id))

            self._show_branch(conversation_id, select, lambda: reveal(message_id))

        self.open(conversation_id, lambda: store_queue.read(hit, opened))

    def show_sibling(self, message_id: int, step: int) -> None:
        """Show the previous or next sibling of this message, with the messages after it."""
        shown = self._state.current
        if shown is None:
            return
        self._answers.save()

        def select(store: Store) -> StoredBranch:
            return store.with_others(store.select_sibling(message_id, step))

        self._show_branch(shown, select)

    def _show_branch(
        self,
        conversation_id: int,
        select: Callable[[Store], StoredBranch],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Show the branch that `select` returns, if the conversation is still shown then."""
        before = [message.id for message in self._state.messages]

        def read(store: Store) -> StoredBranch:
            return store.with_others(store.branch(conversation_id))

        def selected(branch: StoredBranch) -> None:
            nonlocal before
            if self._state.current != conversation_id:
                return
            now = [message.id for message in self._state.messages]
            if now != before or self._answers.is_outdated([*branch.messages, *branch.others]):
                before = now  # messages added since the read are in the store by now
                self._store_queue.read(read, selected, only_if_saved=True)
            else:
                newest = map(self._answers.with_newest_text, branch)
                self._state.show(conversation_id, *newest)
                if then is not None:
                    then()

        self._store_queue.read(select, selected, only_if_saved=True)
