"""Grants: what the user has allowed to tools for later calls, in one chat or in all.

A grant holds for the tool as it was: its origin, name, description and schema. When one of these
changes the user is asked again, and sees the difference.
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable, Iterator, Sequence

from app.domain.tool_activity import Allowed, Grant
from app.domain.tools import Effect, ToolSpec
from app.state.tools import ToolsState
from app.store.store import Store
from app.store.writer import StoreQueue

_CHANGING = frozenset((Effect.WRITES, Effect.RUNS))


class Grants:
    """Decides whether a call needs consent; what is allowed is kept in the store."""

    def __init__(self, shown: ToolsState, store_queue: StoreQueue) -> None:
        self._shown, self._store_queue = shown, store_queue
        self._is_read = False

    def read(self, then: Callable[[], None] = lambda: None) -> None:
        """Read what is allowed; `then` is called when it is known, unless the store fails."""
        if self._is_read:
            then()
            return

        def found(result: tuple[list[Grant], frozenset[str]]) -> None:
            if not self._is_read:  # else it was read twice, and may have been changed since
                self._is_read = True
                self._shown.set_grants(*result)
            then()

        def both(store: Store) -> tuple[list[Grant], frozenset[str]]:
            return store.grants(), store.may_always()

        self._store_queue.read(both, found)

    def allowed(self, tool: ToolSpec, scope: str, conversation: int) -> Allowed | None:
        """By what a call is allowed; None: the user has to be asked."""
        if tool.is_given:
            return Allowed.NO_EFFECT
        for grant in self._of(tool, scope, conversation):
            if grant.digest != tool.digest:
                continue
            if grant.conversation is not None:
                return Allowed.CHAT
            if self.may_always(tool):
                return Allowed.ALWAYS
        return None

    def differences(self, tool: ToolSpec, scope: str, conversation: int) -> tuple[str, ...]:
        """The lines, after "+" or "-", in which a tool differs from what was allowed; none: it was not."""
        for grant in self._of(tool, scope, conversation):
            if grant.digest != tool.digest:
                return tuple(_changed(grant.shown.splitlines(), shown_text(tool).splitlines()))
        return ()

    def may_always(self, tool: ToolSpec) -> bool:
        """Whether a tool can be allowed in all chats: one that changes something only if turned on."""
        return not tool.effects & _CHANGING or tool.id in self._shown.may_always

    def add(self, tool: ToolSpec, scope: str, conversation: int | None) -> None:
        """Allow later calls of a tool, in a chat or in all (None)."""
        grant = Grant(tool.id, tool.digest, scope, conversation, shown_text(tool), time.time())
        self._store_queue.write(lambda store: store.write_grant(grant))
        key = grant.tool, grant.scope, grant.conversation
        others = (g for g in self._shown.grants if (g.tool, g.scope, g.conversation) != key)
        self._shown.set_grants((grant, *others), self._shown.may_always)

    def revoke(self, grant: Grant) -> None:
        """Allow something no more."""
        self._store_queue.write(lambda store: store.delete_grant(grant))
        left = [each for each in self._shown.grants if each != grant]
        self._shown.set_grants(left, self._shown.may_always)

    def revoke_all(self) -> None:
        """Allow nothing any more."""
        self._store_queue.write(lambda store: store.delete_grants())
        self._shown.set_grants((), self._shown.may_always)

    def set_may_always(self, tool_id: str, may: bool) -> None:
        """Let a tool that changes something be allowed in all chats, or no more."""
        tools = self._shown.may_always | {tool_id} if may else self._shown.may_always - {tool_id}
        self._store_queue.write(lambda store: store.set_may_always(tools))
        self._shown.set_grants(self._shown.grants, tools)

    def _of(self, tool: ToolSpec, scope: str, conversation: int) -> list[Grant]:
        """The grants of a tool that may hold for a call."""
        return [
            grant
            for grant in self._shown.grants
            if (grant.tool, grant.scope) == (tool.id, scope)
            and grant.conversation in (None, conversation)
        ]


def _changed(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """The lines that are gone, after "-", and new, after "+"; letters are not compared.

    `difflib.ndiff` does: for 800 lines that a server has changed it takes half a minute.
    """
    matcher = difflib.SequenceMatcher(None, before, now)
    for kind, first, end, first_now, end_now in matcher.get_opcodes():
        if kind != "equal":
            yield from (f"- {line}" for line in before[first:end])
            yield from (f"+ {line}" for line in now[first_now:end_now])


def shown_text(tool: ToolSpec) -> str:
    """What the user allows, as lines of which the changed ones can be shown."""
    try:
        schema = json.dumps(json.loads(tool.schema), indent=1, ensure_ascii=False)
    except (ValueError, RecursionError):
        schema = tool.schema
    return "\n".join((tool.origin, tool.name, tool.description, schema))
