"""Comparing two answers: one question is answered twice at once, and either answer is kept.

Both answers are versions of one answer, and the comparison is stored with them. While it is open,
the branch ends with one of them, and `State.compared` has the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app.chat.answers import Answers
from app.chat.planner import Uses
from app.chat.prompts import turns_of
from app.chat.running_answer import sampling_details
from app.domain.answer_details import AnswerDetails
from app.domain.message import Message, MessageState
from app.settings.answer_options import AnswerOptions
from app.settings.table import Settings, sampling, thinking
from app.state.chat import Notice, State
from app.store.store import Store
from app.store.writer import LocalBranch, StoreQueue
from app.system.translation import tr
from engine import Role, Sampling, Turn

NOTICE = "comparison"  # kind of the notice that an answer has to be kept before going on


@dataclass(frozen=True, slots=True)
class Side:
    """What one of two compared answers is written with."""

    adapters: Uses | None = None  # None: the conversation's; (): none
    sampling: Sampling | None = None  # None: as in the settings
    thinking: bool | None = None  # None: as in the settings


class Comparisons:
    """Begins, closes and reopens comparisons in the state at once, and in the store afterwards."""

    def __init__(
        self,
        state: State,
        store_queue: StoreQueue,
        answers: Answers,
        number: Callable[[], int],
        settings: Callable[[], Settings],
        options: Callable[[int], AnswerOptions],
        kept: Callable[[int], None],
    ) -> None:
        """`number` returns a fresh temporary id, `settings` those of the model in use, `options`
        those of a conversation.

        `kept` is called with the message that is kept.
        """
        self._state = state
        self._store_queue = store_queue
        self._answers = answers
        self._number = number
        self._settings, self._options = settings, options
        self._on_kept = kept
        state.conversation_changed.connect(lambda: state.set_notice(NOTICE, None))

    @property
    def is_open(self) -> bool:
        """Whether the shown branch ends with an answer whose comparison is open."""
        last = self._last()
        return last is not None and last.id in self._state.compared

    def refuse_message(self) -> None:
        """Show why no message can be sent now."""
        sentence = tr("Keep one of the two answers to go on.")
        self._state.set_notice(NOTICE, Notice(sentence))

    def begin(self, message_id: int, left: Side, right: Side) -> None:
        """Answer a question twice anew; the branch ends with the left answer.

        `message_id` is an answer of the shown branch, or the question that ends it.
        """
        state = self._state
        place = next((at for at, m in enumerate(state.messages) if m.id == message_id), -1)
        if place < 0 or state.busy:
            return
        asked = state.messages[place]
        siblings = 0
        if asked.role is Role.ASSISTANT:
            siblings = asked.siblings
            if asked.parent is None:
                return
            place -= 1
            asked = state.messages[place]
        elif place != len(state.messages) - 1:
            return
        state.cut(asked.conversation, place + 1)
        settings = self._settings()
        turns = turns_of(state.messages, settings.system_prompt)
        options = self._options(asked.conversation)
        sides = [self._filled(side, settings, options) for side in (left, right)]
        if sides[0] == sides[1] and sides[1][1].seed >= 0:  # else both texts would be the same
            uses, used, thinks = sides[1]
            sides[1] = uses, replace(used, seed=used.seed + 1), thinks
        details = [
            AnswerDetails(**sampling_details(used, thinks), seed=used.seed)
            for _, used, thinks in sides
        ]
        answers = self._add(asked, siblings, details)
        self._enqueue(answers, turns, sides, settings.max_tokens, options)

    def keep(self, message_id: int) -> None:
        """Make one of two compared answers, which has ended, the answer of the branch.

        The other one is stopped if it is still being written. Both stay versions.
        """
        shown = self._shown(message_id)
        if shown is None or shown.id not in self._state.compared:
            return
        state, store_queue = self._state, self._store_queue
        other = state.compared[shown.id]
        kept, left = (shown, other) if shown.id == message_id else (other, shown)
        if kept.state is MessageState.STREAMING:
            return
        if state.busy and left.state is not MessageState.STREAMING:  # with an answer elsewhere
            return
        kept = replace(kept, undecided=False)
        if kept.id == shown.id:
            state.set_compared(kept, None)
        else:
            state.cut(kept.conversation, len(state.messages) - 1)
            state.add(kept)
        state.set_notice(NOTICE, None)
        self._on_kept(kept.id)
        number = store_queue.messages.stored
        store_queue.write(lambda store: store.keep(number(message_id)))
        self._answers.stop_answer(left.id)  # after `kept`, which decides whose context is saved

        def read(store: Store) -> LocalBranch:
            return store_queue.local_branch(
                store, store.branch(store_queue.conversations.stored(kept.conversation))
            )

        def shown_now(branch: LocalBranch) -> None:
            now = [message.id for message in state.branches.get(kept.conversation, ())]
            longer = [message.id for message in branch.messages]
            if longer != now and longer[: len(now)] == now and not state.busy:
                state.set_branch(kept.conversation, *branch)  # it was answered before

        store_queue.read(read, shown_now, only_if_saved=True)

    def reopen(self, message_id: int) -> None:
        """Show both answers of a closed comparison again, if one of them ends the shown branch."""
        shown = self._shown(message_id)
        if shown is None or shown.undecided or not shown.compared or self._state.busy:
            return
        store_queue = self._store_queue
        number = store_queue.messages.stored
        store_queue.write(lambda store: store.reopen_comparison(number(shown.id)))

        def read(store: Store) -> LocalBranch:
            return store_queue.local_branch(store, [store.message(number(shown.id))])

        def opened(found: LocalBranch) -> None:
            last = self._state.branches[shown.conversation][-1:]
            if found.others and last and last[0].id == shown.id:
                message = replace(last[0], undecided=True)
                self._state.set_compared(message, found.others[0])

        store_queue.read(read, opened, only_if_saved=True)

    # --- steps ----------------------------------------------------------------------------------

    def _last(self) -> Message | None:
        return self._state.messages[-1] if self._state.messages else None

    def _shown(self, message_id: int) -> Message | None:
        """The last message of the shown branch, if it is this one or was compared with it."""
        last = self._last()
        return last if last is not None and message_id in (last.id, last.compared) else None

    def _filled(
        self, side: Side, settings: Settings, options: AnswerOptions
    ) -> tuple[Uses | None, Sampling, bool | None]:
        loaded = self._state.model.loaded
        sampled = options.applied(sampling(settings, loaded.sampling if loaded else None))
        used = sampled if side.sampling is None else side.sampling
        usual = options.thinks(thinking(settings))
        thinks = usual if side.thinking is None else side.thinking
        return side.adapters, used, thinks

    def _add(
        self, asked: Message, siblings: int, details: Sequence[AnswerDetails]
    ) -> tuple[Message, Message]:
        """Add both answers to the state and the store."""
        store_queue, model = self._store_queue, self._state.model.name
        numbers = self._number(), self._number()
        left, right = (
            Message(
                numbers[at],
                asked.conversation,
                asked.id,
                Role.ASSISTANT,
                (),
                MessageState.STREAMING,
                time.time(),
                model,
                "",
                0,
                0,
                0.0,
                siblings + 1 + at,
                siblings + 2,
                details=details[at],
                compared=numbers[1 - at],
                undecided=True,
            )
            for at in range(2)
        )

        def add(store: Store) -> None:
            added = store.add_comparison(
                store_queue.conversations.stored(asked.conversation),
                store_queue.messages.stored(asked.id),
                model,
                details,
            )
            for number, message in zip(numbers, added, strict=True):
                store_queue.messages.pair(number, message.id)

        store_queue.write(add)
        self._state.add(left, right)
        return left, right

    def _enqueue(
        self,
        answers: Sequence[Message],
        turns: tuple[Turn, ...],
        sides: Sequence[tuple[Uses | None, Sampling, bool | None]],
        most: int,
        options: AnswerOptions,
    ) -> None:
        for message, (uses, used, thinks) in zip(answers, sides, strict=True):
            self._answers.enqueue(
                message,
                turns,
                used,
                most,
                adapters=uses,
                thinking=thinks,
                budget=None if thinks is False else options.budget,
                constraint=options.constraint,
            )
