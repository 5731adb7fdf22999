"""Comparing two answers: one question is answered twice at once, and either answer is kept.

Both answers are versions of one answer, and the comparison is stored with them. While it is open,
the branch ends with one of them, and `State.compared` has the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from app.chat.answering.answers import Answers
from app.chat.requests.planner import Uses
from app.chat.requests.prompts import PromptBuilder
from app.chat.requests.running_answer import sampling_details
from app.domain.answer_details import AnswerDetails
from app.domain.answer_request import AnswerRequest
from app.domain.generation_settings import GenerationSettings
from app.domain.ids import new_id
from app.domain.message import Message, MessageState
from app.settings.samplers import SAMPLERS
from app.state.chat import Notice, State
from app.store.store import Store, StoredBranch
from app.store.writer import StoreQueue
from app.system.translation import tr
from engine import AdapterUse, Chat, Role

NOTICE = "comparison"  # kind of the notice that an answer has to be kept before going on


class Comparisons:
    """Begins, closes and reopens comparisons in the state at once, and in the store afterwards."""

    def __init__(
        self,
        state: State,
        store_queue: StoreQueue,
        answers: Answers,
        prompts: PromptBuilder,
        kept: Callable[[int], None],
    ) -> None:
        """`kept` is called with the message that is kept."""
        self._state = state
        self._store_queue = store_queue
        self._answers = answers
        self._prompts = prompts
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

    def begin(self, message_id: int, left: GenerationSettings, right: GenerationSettings) -> None:
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
        branch, chat = state.messages, state.settings(asked.conversation)
        command = self._prompts.command(asked.conversation, branch)
        sides = [_filled(side, command) for side in (left, right)]
        models = [side.model or chat.model for side in (left, right)]
        same = sides[0] == sides[1] and models[0] == models[1]
        if same and sides[1].sampling.seed >= 0:  # else both texts are the same
            used = sides[1].sampling
            sides[1] = replace(sides[1], sampling=replace(used, seed=used.seed + 1))
        details = [
            AnswerDetails(
                model=self._state.model.name if model is None else self._state.model_name(model),
                seed=each.sampling.seed,
                **sampling_details(each.sampling, each.thinking),
            )
            for each, model in zip(sides, models, strict=True)
        ]

        def so_far(answer: Message) -> Sequence[Message]:
            """The branch with what an answer has by now, if it goes on."""
            now = state.message(answer.id)
            return (*branch, now) if now is not None and now.parts else branch

        def asks(answer: Message, side: Chat) -> Callable[[], Chat]:
            """What is asked once the model is loaded: the instructions may be the model's own."""
            return lambda: replace(
                self._prompts.command(asked.conversation, so_far(answer)),
                sampling=side.sampling,
                thinking=side.thinking,
                thinking_budget=side.thinking_budget,
                adapters=side.adapters,
            )

        def elsewhere(answer: Message, side: Chat) -> Callable[[], AnswerRequest]:
            """The same of an engine elsewhere."""
            usual = self._prompts.usual_sampling()
            values = {name: getattr(side.sampling, name) for name in SAMPLERS}
            chosen = {name: each for name, each in values.items() if each != getattr(usual, name)}

            def request() -> AnswerRequest:
                made = self._prompts.request(asked.conversation, so_far(answer))
                return replace(made, sampling={**made.sampling, **chosen}, thinking=side.thinking)

            return request

        answers = self._add(asked, siblings, details)
        chosen = (left.model, right.model)
        for message, each, model in zip(answers, sides, chosen, strict=True):
            self._answers.enqueue(
                message,
                asks(message, each),
                request=elsewhere(message, each),
                adapters=each.adapters,
                model=model,
            )

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
        store_queue.write(lambda store: store.keep(message_id))
        self._answers.stop_answer(left.id)  # after `kept`, which decides whose context is saved

        def read(store: Store) -> StoredBranch:
            return store.with_others(store.branch(kept.conversation))

        def shown_now(branch: StoredBranch) -> None:
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
        store_queue.write(lambda store: store.reopen_comparison(shown.id))

        def read(store: Store) -> StoredBranch:
            return store.with_others([store.message(shown.id)])

        def opened(found: StoredBranch) -> None:
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

    def _add(
        self, asked: Message, siblings: int, details: Sequence[AnswerDetails]
    ) -> tuple[Message, Message]:
        """Add both answers to the state and the store."""
        model, ids = self._state.model.name, (new_id(), new_id())
        left, right = (
            Message(
                ids[at],
                asked.conversation,
                asked.id,
                Role.ASSISTANT,
                (),
                MessageState.STREAMING,
                time.time(),
                details[at].model,
                "",
                0,
                0,
                0.0,
                siblings + 1 + at,
                siblings + 2,
                details=details[at],
                compared=ids[1 - at],
                undecided=True,
            )
            for at in range(2)
        )

        def add(store: Store) -> None:
            store.add_comparison(asked.conversation, asked.id, model, details, ids=ids)

        self._store_queue.write(add)
        self._state.add(left, right)
        return left, right


def _filled(side: GenerationSettings, command: Chat) -> Chat:
    """The request of a chat, with what one of two answers is to be written with."""
    thinks = command.thinking if side.thinking is None else side.thinking
    return replace(
        command,
        sampling=side.sampling or command.sampling,
        thinking=thinks,
        thinking_budget=None if thinks is False else command.thinking_budget,
        adapters=_uses(side),
    )


def _uses(side: GenerationSettings) -> Uses | None:
    """The adapters of an answer; None: those of its chat."""
    if side.acting is None:
        return None
    return tuple(AdapterUse(each.path, each.strength) for each in side.acting if each.path)
