"""Tool calls: what an answer asked for is allowed, carried out and recorded, while the answer waits.

Each call is a coroutine: its tool is found, its arguments are read, consent is asked for where the
user has not given it, and then it runs on the tools' thread. The result becomes a part of the answer
as soon as it is there. Calls of one round run at once, unless one of them changes something: then
one after the other.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from app.chat.tools.grants import Grants
from app.chat.tools.kept_files import AnswerRoom, FileKeeper, Kept
from app.chat.tools.offered import OfferedTools
from app.chat.tools.thread import ToolThread, Work
from app.domain.ids import new_id
from app.domain.parts import CallEnd, Parts, ToolCallPart, ToolResultPart
from app.domain.tool_activity import Allowed, CallState, ToolActivity
from app.domain.tool_rounds import open_calls
from app.domain.tool_words import indented
from app.domain.tools import CallContext, Effect, ToolError, ToolOutcome, ToolSpec
from app.engines.run import Waiting, start
from app.state.chat import State
from app.state.tools import CallPhase, Consent, LiveCall, ToolsState
from app.store.blobs import Blobs
from app.store.schema import StoreError
from app.store.writer import StoreQueue
from app.tools.arguments import parse
from app.tools.results import MOST_CHARACTERS, capped, clean

_MOST_CALLS = 20  # of one round
_MOST_OUTPUT = 4_000  # characters that are shown of what a call prints
_MOST_SECONDS = 660.0  # that a call of a server may take whatever it reports
_MOST_WORDS = 4_000  # characters of why a call is refused, which may have names of tools
_FENCE = 300  # characters left for the fence and the note around a result
_STATES = {
    CallEnd.DENIED: CallState.DENIED,
    CallEnd.STOPPED: CallState.STOPPED,
    CallEnd.REFUSED: CallState.REFUSED,
}
_DENIED = "The user did not allow this call. Go on without it, or ask what to do instead."
_STOPPED = "The user stopped this call."
_NO_FILES = Kept()


@dataclass(slots=True, eq=False)
class _Round:
    """The calls of an answer that it waits for."""

    conversation: int
    message: int
    parts: Parts  # of the answer, with the results so far
    done: Callable[[Parts], None]
    repeated: frozenset[str] = frozenset()  # ids of calls that had begun before the app ended
    calls: dict[str, _Call] = field(default_factory=dict[str, "_Call"])  # without a result, by id
    is_over: bool = False  # it was stopped, or the app quits
    room: AnswerRoom = field(default_factory=AnswerRoom)  # for the files that they return


@dataclass(slots=True, eq=False)
class _Call:
    """One call in progress."""

    part: ToolCallPart
    place: int  # in its round, from 0
    answered: Waiting[tuple[Consent, str]] = field(
        default_factory=Waiting[tuple[Consent, str]]
    )  # with the arguments
    work: Work[_Done] | None = None
    record: ToolActivity | None = None
    tool: ToolSpec | None = None
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class _Done:
    """What a call returned, as its part has it."""

    text: str
    failed: bool = False
    sha256: str = ""
    characters: int = 0
    kept: Kept = _NO_FILES


class ToolCalls:
    """Carries out the calls of answers; methods are called on the GUI thread."""

    def __init__(
        self,
        state: State,
        shown: ToolsState,
        store_queue: StoreQueue,
        offered: OfferedTools,
        grants: Grants,
        thread: ToolThread,
        blobs: Blobs,
        files: FileKeeper,
        seconds: Callable[[], float],
        report: Callable[[Exception], None],
        recorded: Callable[[ToolActivity], None],
    ) -> None:
        """`seconds` is the time for a call of a built-in tool. `report` is called with an unexpected
        exception, `recorded` with each call that has begun, and again when it has ended.
        """
        self._seconds, self._files = seconds, files
        self._state, self._shown, self._store_queue = state, shown, store_queue
        self._offered, self._grants, self._thread, self._blobs = offered, grants, thread, blobs
        self._report, self._recorded = report, recorded
        self._rounds: dict[int, _Round] = {}  # by message
        self._is_closed = False

    def run(
        self, conversation: int, message: int, parts: Parts, done: Callable[[Parts], None]
    ) -> bool:
        """Carry out the calls of an answer that have no result; False if there are none.

        `done` is called later, with the parts and all results, unless the answer is stopped.
        """
        calls = open_calls(parts)
        if not calls:
            return False
        if self._is_closed:
            return True  # the answer waits: it is continued in the next run
        made = _Round(conversation, message, parts, done, room=AnswerRoom.behind(parts))
        made.calls = {part.call: _Call(part, place) for place, part in enumerate(calls)}
        self._rounds[message] = made

        def begun(found: frozenset[str]) -> None:
            made.repeated = found
            self._grants.read(lambda: self._begin(made))

        self._store_queue.read(lambda store: store.begun_calls(message), begun)
        return True

    def stop(self, message: int) -> None:
        """Stop the calls of an answer, if it has some: their results say so."""
        found = self._rounds.get(message)
        if found is None:
            return
        found.is_over = True  # it does not go on with these results
        for call in list(found.calls.values()):
            self._end(found, call, _result(call.part, CallEnd.STOPPED, _STOPPED))
        self._drop(found)

    def close(self) -> None:
        """Cancel all calls without results, and begin no more: the app quits."""
        self._is_closed = True
        for found in list(self._rounds.values()):
            self._drop(found)

    def decide(self, message: int, call: str, consent: Consent, arguments: str) -> None:
        """The user's answer to whether a call may be carried out, with these arguments."""
        found = self._rounds.get(message)
        one = found.calls.get(call) if found else None
        live = self._shown.live.get((message, call))
        if one is not None and live is not None and live.phase is CallPhase.ASKING:
            one.answered.put((consent, arguments))

    def stop_call(self, message: int, call: str) -> None:
        """Stop one call; the answer goes on with that."""
        found = self._rounds.get(message)
        one = found.calls.get(call) if found else None
        if found is not None and one is not None:
            self._end(found, one, _result(one.part, CallEnd.STOPPED, _STOPPED))

    # --- a call ---------------------------------------------------------------------------------

    def _begin(self, made: _Round) -> None:
        """Begin the calls: at once, or one after the other if one changes something."""
        if made.is_over:
            return
        calls = list(made.calls.values())
        for call in calls:
            call.tool = self._offered.find(made.conversation, call.part.name)
        in_order = any(
            call.tool and call.tool.effects & {Effect.WRITES, Effect.RUNS} for call in calls
        )
        for group in [calls] if in_order else [[call] for call in calls]:
            start(self._follow(made, group), self._report)

    async def _follow(self, made: _Round, calls: Sequence[_Call]) -> None:
        for call in calls:
            if made.is_over:
                return
            if call.part.call in made.calls:  # else it was stopped meanwhile
                try:
                    result = await self._result(made, call)
                except asyncio.CancelledError:
                    result = _result(call.part, CallEnd.STOPPED, _STOPPED)
                except Exception as error:  # noqa: BLE001  (the answer goes on)
                    self._report(error)
                    words = f"The call failed: {type(error).__name__}."
                    result = _result(call.part, "", words, failed=True)
                self._end(made, call, result)

    async def _result(self, made: _Round, call: _Call) -> ToolResultPart:
        """The result of a call, whatever becomes of it."""
        part = call.part
        # A call before this one may have taken long: the chat or the tool may have changed.
        call.tool = tool = self._offered.find(made.conversation, part.name)
        if tool is None:
            return _result(part, CallEnd.REFUSED, self._no_tool(made.conversation, part.name))
        if call.place >= _MOST_CALLS:
            words = f"Only {_MOST_CALLS} calls can be made at once. Make this one later if needed."
            return _result(part, CallEnd.REFUSED, words)
        try:
            arguments = parse(part.arguments, tool.schema)
        except ToolError as error:
            return _result(part, CallEnd.REFUSED, str(error))
        if not _is_object(part.arguments):  # it was read leniently: later prompts have it as JSON
            part = self._change(made, call, json.dumps(arguments, ensure_ascii=False))
        scope = self._offered.source.scope(tool.id, arguments)
        allowed = self._grants.allowed(tool, scope, made.conversation)
        repeated = part.call in made.repeated and allowed is not Allowed.NO_EFFECT
        if allowed is None or repeated:
            try:
                consent, text = await self._consent(made, call, tool, arguments, scope, repeated)
            except ToolError as error:
                return _result(part, "", str(error))
            if call.is_stopped:
                return _result(part, CallEnd.STOPPED, _STOPPED)
            if consent is Consent.DENY:
                return _result(part, CallEnd.DENIED, _DENIED)
            try:
                edited = parse(text, tool.schema)
            except ToolError as error:
                return _result(part, CallEnd.REFUSED, str(error))
            if indented(edited) != indented(arguments):  # of Python's values, 1 equals true
                arguments, written = edited, part.written or part.arguments
                text = json.dumps(arguments, ensure_ascii=False)
                part = self._change(made, call, text, written)
            asked, scope = scope, self._offered.source.scope(tool.id, arguments)
            if scope != asked:  # the question named another one
                consent = Consent.ONCE
            allowed = self._allow(tool, scope, made.conversation, consent)
        self._record(made, call, tool, allowed)
        live = LiveCall(
            made.conversation,
            made.message,
            part.call,
            tool,
            indented(arguments),
            CallPhase.RUNNING,
            scope=scope,
            began=time.monotonic(),
        )
        self._shown.set_live(live)
        began = time.monotonic()
        chat = self._state.settings(made.conversation)
        context = CallContext(
            made.conversation,
            chat.readable,
            chat.writable,
            partial(self._output, made.message, part.call),
        )
        limit = _MOST_SECONDS if tool.server else self._seconds()  # servers have their own
        call.work = self._thread.start(self._carry_out(made, tool, arguments, context, limit))
        done = await call.work.result()
        return ToolResultPart(
            part.name,
            done.text,
            part.call,
            done.failed,
            seconds=round(time.monotonic() - began, 3),
            sha256=done.sha256,
            characters=done.characters,
            ours=not tool.server and not tool.effects,
            files=done.kept.files,
            files_left_out=done.kept.left_out,
        )

    async def _consent(
        self,
        made: _Round,
        call: _Call,
        tool: ToolSpec,
        arguments: dict[str, Any],
        scope: str,
        repeated: bool,
    ) -> tuple[Consent, str]:
        """Ask the user; with the arguments as the user left them. Raises ToolError if it cannot
        be carried out.
        """
        chat = self._state.settings(made.conversation)
        context = CallContext(made.conversation, chat.readable, chat.writable)
        changes = partial(self._offered.source.changes, tool.id, arguments, context)
        # It may look at files, on a slow disk.
        words = await self._thread.start(asyncio.to_thread(changes)).result()
        if call.is_stopped:
            return Consent.DENY, ""
        live = LiveCall(
            made.conversation,
            made.message,
            call.part.call,
            tool,
            indented(arguments),
            CallPhase.ASKING,
            changes=tuple(words),
            scope=scope,
            may_always=self._grants.may_always(tool),
            differences=self._grants.differences(tool, scope, made.conversation),
            repeated=repeated,
        )
        self._shown.set_live(live)
        return await call.answered

    def _allow(self, tool: ToolSpec, scope: str, conversation: int, consent: Consent) -> Allowed:
        """Keep what the user allows for later calls."""
        match consent:
            case Consent.CHAT:
                self._grants.add(tool, scope, conversation)
                return Allowed.CHAT
            case Consent.ALWAYS if self._grants.may_always(tool):
                self._grants.add(tool, scope, None)
                return Allowed.ALWAYS
            case _:
                return Allowed.ONCE

    async def _carry_out(
        self,
        made: _Round,
        tool: ToolSpec,
        arguments: dict[str, Any],
        context: CallContext,
        limit: float,
    ) -> _Done:
        """The call, on the tools' thread; what does not fit into its part is kept in files."""
        source = self._offered.source
        try:
            now = next((each for each in source.tools() if each.id == tool.id), tool)
            if (now.digest, now.effects) != (tool.digest, tool.effects):
                raise ToolError("This tool was changed meanwhile, and was not called.")
            outcome = await asyncio.wait_for(source.call(tool.id, arguments, context), limit)
        except ToolError as error:
            outcome = ToolOutcome(str(error), failed=True)
        except TimeoutError:
            words = f"The call took longer than {limit:g} seconds and was stopped."
            outcome = ToolOutcome(words, failed=True)
        kept = await self._files.keep(outcome, made.room)
        text = "\n".join(filter(None, (kept.told, clean(outcome.text))))
        head, left_out = capped(text, MOST_CHARACTERS - _FENCE)
        if not left_out:
            return _Done(text, outcome.failed, kept=kept)
        try:
            content = text.encode("utf-8", "replace")
            sha256 = await asyncio.to_thread(self._blobs.add, content)
        except StoreError:
            sha256 = ""
        return _Done(head, outcome.failed, sha256, len(text), kept)

    # --- steps ----------------------------------------------------------------------------------

    def _no_tool(self, conversation: int, name: str) -> str:
        names = ", ".join(tool.name for tool in self._offered.of(conversation))
        known = f"The tools are: {names}." if names else "No tools can be called now."
        return f"There is no tool {clean(name)[:64]!r}. {known}"

    def _change(self, made: _Round, call: _Call, arguments: str, written: str = "") -> ToolCallPart:
        """Give a call other arguments; `written` are those of the model, if the user changed them."""
        old = call.part
        call.part = replace(old, arguments=arguments, written=written, source="")
        made.parts = parts = tuple(call.part if part == old else part for part in made.parts)
        self._store_queue.write(lambda store: store.set_answer_parts(made.message, parts))
        self._show(made)
        return call.part

    def _output(self, message: int, call: str, text: str) -> None:
        """What a call prints, on any thread."""

        def show() -> None:
            live = self._shown.live.get((message, call))
            if live is not None and live.phase is CallPhase.RUNNING:
                output = (live.output + clean(text[-_MOST_OUTPUT:]))[-_MOST_OUTPUT:]
                self._shown.set_live(replace(live, output=output))

        self._thread.tell(show)

    def _record(self, made: _Round, call: _Call, tool: ToolSpec, allowed: Allowed) -> None:
        """Store that a call begins, before it does: a crash must not hide that it was made."""
        self._write(self._activity(made, call, CallState.RUNNING, allowed))
        if allowed is not Allowed.NO_EFFECT:
            self._store_queue.settle()

    def _activity(
        self, made: _Round, call: _Call, state: CallState, allowed: Allowed
    ) -> ToolActivity:
        """A new row of the list of all calls."""
        part, tool = call.part, call.tool
        call.record = ToolActivity(
            new_id(),
            made.conversation,
            made.message,
            part.call,
            tool.id if tool else "",
            part.name,
            tool.server if tool else "",
            part.arguments,
            "",
            state,
            allowed,
            time.time(),
        )
        return call.record

    def _write(self, row: ToolActivity) -> None:
        self._store_queue.write(lambda store: store.write_call(row))
        self._recorded(row)

    def _end(self, made: _Round, call: _Call, result: ToolResultPart) -> None:
        """A call has a result: it is a part of the answer, in the state and the store."""
        if made.calls.pop(call.part.call, None) is None:
            return
        call.is_stopped = result.end == CallEnd.STOPPED
        record = call.record or self._activity(made, call, CallState.RUNNING, Allowed.NOBODY)
        state = _STATES.get(CallEnd(result.end)) if result.end else None
        ended = state or (CallState.FAILED if result.failed else CallState.DONE)
        made.parts = (*made.parts, result)
        # First: a call that has ended in the list is not known to be repeated after a crash.
        self._store_queue.write(lambda store: store.add_part(made.message, result))
        self._write(
            replace(record, state=ended, result=result.text, seconds=result.seconds,
                    arguments=call.part.arguments)
        )  # fmt: skip
        self._shown.end_live(made.message, call.part.call)
        self._show(made)
        if call.work is not None:
            call.work.cancel()
        elif call.is_stopped:  # it waits for consent: its coroutine ends
            call.answered.put((Consent.DENY, ""))
        if not made.calls and not made.is_over:
            self._drop(made)
            made.done(made.parts)

    def _show(self, made: _Round) -> None:
        if (message := self._state.message(made.message)) is not None:
            self._state.change(replace(message, parts=made.parts))

    def _drop(self, made: _Round) -> None:
        """The calls of an answer are over."""
        made.is_over = True
        self._rounds.pop(made.message, None)
        for id, call in list(made.calls.items()):
            call.is_stopped = True
            self._shown.end_live(made.message, id)
            if call.work is not None:
                call.work.cancel()
        made.calls.clear()


def _result(
    part: ToolCallPart, end: CallEnd | str, words: str, *, failed: bool = True
) -> ToolResultPart:
    """A result in the words of this app."""
    words = capped(words, _MOST_WORDS)[0]
    return ToolResultPart(part.name, words, part.call, failed, str(end), ours=True)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
