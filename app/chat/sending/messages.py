"""Messages: sends, edits and answers messages, and generates answers again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from app.chat.answering.answers import FULL_NOTICE, Answers
from app.chat.answering.comparison import Comparisons
from app.chat.requests.prompts import PromptBuilder, length_instruction
from app.chat.sending.attachments import Attachments
from app.chat.sending.drafts import UnsentText
from app.chat.sending.fit import Fit
from app.chat.sending.outbox import Outbox
from app.chat.sending.sight import Sight
from app.chat.settings.chat_settings import ChatSettingsController
from app.domain.answer_details import AnswerDetails
from app.domain.ids import new_id
from app.domain.message import AnswerAgain, Message, MessageState
from app.domain.model_ref import ModelRef
from app.domain.parts import (
    Content,
    Parts,
    clipboard_text,
    edited_answer,
    parts_of,
    typed_text,
    without_empty_ends,
)
from app.domain.passages import passages_part
from app.domain.tool_rounds import parts_before
from app.domain.word_count import word_count
from app.state.attachments import Editing
from app.state.chat import State
from app.store.store import Store
from app.store.writer import StoreQueue
from engine import ContextPolicy, Role


class Messages:
    """Adds messages to the state at once, and to the store afterwards, and asks for answers."""

    def __init__(
        self,
        state: State,
        store_queue: StoreQueue,
        answers: Answers,
        prompts: PromptBuilder,
        settings: ChatSettingsController,
        comparisons: Comparisons,
        outbox: Outbox,
        drafts: UnsentText,
        attachments: Attachments,
        fit: Fit,
        sight: Sight,
        refuses: Callable[[int | None, ModelRef | None], bool],
        begin: Callable[[Parts], int],
        unarchive: Callable[[Sequence[int]], None],
    ) -> None:
        """`refuses` says whether a chat cannot be answered now, also by a certain model; `begin`
        creates a chat with a first message, `unarchive` lists chats that are in use again.
        """
        self._state, self._store_queue, self._answers = state, store_queue, answers
        self._prompts, self._settings, self._comparisons = prompts, settings, comparisons
        self._outbox, self._drafts, self._attachments = outbox, drafts, attachments
        self._fit, self._sight = fit, sight
        self._refuses, self._begin, self._unarchive = refuses, begin, unarchive

    def send(self, content: Content, left: Parts = ()) -> bool:
        """Send a message with the attached files in the shown conversation; False when it cannot be
        sent now.

        During an answer it waits in the outbox. It is saved when this returns, if the disk allows:
        what was typed leaves the field, whose draft may be older. `left` is unsent and stays in the field.
        """
        shown = self._state.current
        typed = without_empty_ends(parts_of(Role.USER, content))
        parts = (*self._attachments.parts(shown), *typed)
        if self._attachments.refuses(shown) or not parts:
            return False
        if self._sight.refuses(shown, parts):
            return False
        if shown is not None and self._state.busy:
            if self._fit.refuses(parts):
                return False
            self._outbox.add(shown, parts)
            self._drafts.keep(shown, left)
            self._attachments.clear(shown)
            self._store_queue.settle()
            return True
        if self._refuses(shown, None) or self._fit.refuses(parts):
            return False
        if self._comparisons.is_open:
            self._comparisons.refuse_message()
            return False
        parent = self._state.messages[-1].id if self._state.messages else None
        conversation_id = self._begin(parts) if shown is None else shown
        self._ask(conversation_id, parent, parts)
        self._drafts.keep(conversation_id, left)
        if shown is None:
            self._drafts.keep(None, ())  # last: a crash before must not lose the message
        self._attachments.clear(shown)
        if shown is None:
            self._state.show(conversation_id)
        self._store_queue.settle()
        return True

    def regenerate(
        self,
        message_id: int,
        how: AnswerAgain = AnswerAgain.SAME,
        model: ModelRef | None = None,
    ) -> None:
        """Generate another answer as a sibling of this one.

        `model` writes this answer alone; None: the model of the chat does.
        """
        place, old = self._find(message_id)
        if old is None or old.role is not Role.ASSISTANT or self._state.busy:
            return
        if old.is_greeting or self._refuses(old.conversation, model):
            return
        self._state.cut(old.conversation, place)
        extra = length_instruction(how, word_count(clipboard_text(old.parts)))
        made = AnswerDetails(extra=extra) if extra else None
        siblings = old.siblings + 1
        again = self._add(
            old.conversation, old.parent, Role.ASSISTANT, (), siblings, made, by=model
        )
        self.answer(again, model)

    def answer_from(self, message_id: int, call: str) -> None:
        """Write an answer again from before a call of a tool on, as a sibling of it."""
        place, old = self._find(message_id)
        if (
            old is None
            or self._state.busy
            or old.undecided
            or self._refuses(old.conversation, None)
        ):
            return
        self._state.cut(old.conversation, place)
        parts = parts_before(old.parts, call)
        again = self._add(old.conversation, old.parent, Role.ASSISTANT, parts, old.siblings + 1)
        self.answer(again)

    def edit(self, message_id: int, content: Content) -> bool:
        """Send an edited user message, or keep an edited answer, as a sibling.

        The old branch stays. False when it cannot be sent now: what was typed must be kept.
        """
        place, old = self._find(message_id)
        if old is None or old.undecided:
            return True  # it is not there to be edited
        if self._state.busy:
            return False
        if old.role is Role.ASSISTANT:
            self._keep_edited(place, old, content)
            self._store_queue.settle()
            return True
        parts = without_empty_ends(parts_of(Role.USER, content))
        parts = self._attachments.with_files(message_id, parts)
        editor = Editing(message_id)
        if old.role is Role.USER and self._attachments.refuses(editor):
            return False
        if old.role is not Role.USER or not parts:
            return True
        if self._refuses(old.conversation, None):
            return False
        if self._sight.refuses(old.conversation, parts):
            return False
        if passages_part(parts) is None and self._fit.refuses(parts, editor):
            return False  # one with passages was sent before
        self._attachments.cancel_edit(message_id)  # they are sent with it
        self._state.cut(old.conversation, place)
        self._ask(old.conversation, old.parent, parts, old.siblings + 1)
        self._store_queue.settle()
        return True

    def _keep_edited(self, place: int, old: Message, content: Content) -> None:
        """Show an answer with another text as a new version, from which the chat goes on."""
        text = content if isinstance(content, str) else typed_text(content)
        parts = edited_answer(old.parts, text)
        if not text.strip() or parts == old.parts:
            return
        self._state.cut(old.conversation, place)
        made = replace(old.details or AnswerDetails(model=old.model), edited=True)
        siblings = old.siblings + 1
        edited = self._add(
            old.conversation, old.parent, Role.ASSISTANT, parts, siblings, made, written=True
        )
        self._store_queue.write(
            lambda store: store.finish(edited.id, MessageState.COMPLETE, details=made)
        )

    def go_on_without_oldest(self) -> None:
        """Answer again in the full chat, which leaves out its oldest messages from now on."""
        conversation, message = self._answers.full_answer()
        self._state.set_notice(FULL_NOTICE, None)
        settings = replace(self._state.settings(conversation), policy=ContextPolicy.DROP_OLDEST)
        self._settings.change(conversation, settings)
        if self._state.current == conversation:
            compared = self._state.compared.items()
            shown = next((mine for mine, other in compared if other.id == message), message)
            self.regenerate(shown)

    def send_in(
        self, conversation_id: int, parts: Parts, again: Callable[[], object] = lambda: None
    ) -> bool:
        """Send a message at the end of a conversation that was opened; False when it cannot be.

        `again` is called to send it when it has been counted, if it had to be.
        """
        branch = self._state.branches.get(conversation_id)
        if not branch or self._refuses(conversation_id, None):
            return False
        if self._sight.refuses(conversation_id, parts):
            return False
        if self._fit.refuses_waiting(conversation_id, parts, again):
            return False
        self._ask(conversation_id, branch[-1].id, parts)
        return True

    def answer(self, message: Message, model: ModelRef | None = None) -> None:
        """Ask for an answer; `model` writes this one alone, None: the model of the chat does."""
        branch = self._state.branches[message.conversation]
        self._settings.keep_variables(message.conversation)
        extra = message.details.extra if message.details else ""
        self._answers.enqueue(
            message,
            lambda: self._prompts.command(message.conversation, branch, extra),
            request=lambda: self._prompts.request(message.conversation, branch, extra),
            model=model,
        )

    # --- steps ----------------------------------------------------------------------------------

    def _ask(
        self, conversation_id: int, parent: int | None, parts: Parts, sibling: int = 1
    ) -> None:
        self._unarchive([conversation_id])  # it is in use again
        own = self._add(conversation_id, parent, Role.USER, parts, sibling)
        self.answer(self._add(conversation_id, own.id, Role.ASSISTANT, (), 1))

    def _add(
        self,
        conversation_id: int,
        parent: int | None,
        role: Role,
        parts: Parts,
        sibling: int,
        details: AnswerDetails | None = None,
        *,
        by: ModelRef | None = None,
        written: bool = False,
    ) -> Message:
        """Append a message to the branch, as the newest of `sibling` siblings.

        An answer is to be written, by the model `by` or that of the chat, unless it is `written`:
        by the model of its `details`.
        """
        own = role is Role.USER
        state = MessageState.COMPLETE if own or written else MessageState.STREAMING
        by = by or self._state.settings(conversation_id).model
        used = self._state.model.name if by is None else self._state.model_name(by)
        model = details.model if written and details else used
        message = Message(
            new_id(), conversation_id, parent, role, parts, state, time.time(), "" if own else model,
            "", 0, 0, 0.0, sibling, sibling, details=details,
        )  # fmt: skip

        def add(store: Store) -> None:
            store.add_message(
                conversation_id, parent, role, parts, state, message.model, id=message.id
            )

        self._store_queue.write(add, message.text)
        self._state.add(message)
        return message

    def _find(self, message_id: int) -> tuple[int, Message | None]:
        """Index of a message in the shown branch, and the message; (-1, None) if absent."""
        for place, message in enumerate(self._state.messages):
            if message.id == message_id:
                return place, message
        return -1, None
