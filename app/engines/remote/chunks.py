"""Chunks of a streamed answer as deltas: texts, thoughts, tool calls, usage, and the end.

Servers differ in where thoughts are, in how they number tool calls, and in what they leave out:
missing ids, indexes and reasons are derived from the other fields.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from app.domain.deltas import (
    AnswerEnd,
    AnswerUsage,
    Delta,
    EndReason,
    PromptProgressDelta,
    TextDelta,
    ThoughtDelta,
    ToolCallDelta,
)
from app.engines.remote.thoughts import ThoughtSplitter
from app.engines.remote.values import (
    Object,
    count_of,
    number_of,
    object_of,
    rows_of,
    text_of,
)

_REASONS = {
    "stop": EndReason.END,
    "eos": EndReason.END,
    "eos_token": EndReason.END,
    "end_turn": EndReason.END,
    "stop_sequence": EndReason.END,
    "length": EndReason.LENGTH,
    "max_tokens": EndReason.LENGTH,
    "model_length": EndReason.CONTEXT,
    "tool_calls": EndReason.TOOL_CALLS,
    "tool_use": EndReason.TOOL_CALLS,
    "function_call": EndReason.TOOL_CALLS,
    "content_filter": EndReason.FILTERED,
    "safety": EndReason.FILTERED,
    "repetition": EndReason.REPETITION,
    "abort": EndReason.CANCELLED,
}
Written = TextDelta | ThoughtDelta | ToolCallDelta
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # the same text, if there are several


@dataclass
class _Call:
    """A tool call as far as it has come."""

    index: int
    id: str = ""
    name: str = ""
    key: object = None  # the server's index
    given: bool = False  # its first delta was passed on
    arguments: str = ""  # pieces that came before its name


@dataclass
class ChunkReader:
    """Reads the chunks of one answer; `started` is when it was asked for (`clock`)."""

    started: float
    max_tokens: int = 0  # asked for; 0: no limit
    context: int = 0  # tokens of the model; 0: not known
    continues: bool = False
    echo: str = ""  # text that is continued, which the server may repeat first
    clock: Callable[[], float] = time.monotonic
    reason: EndReason | None = None
    model: str = ""
    has_events: bool = False  # the response is a stream of events
    is_done: bool = False  # the server has said that nothing follows
    has_content: bool = False  # something of the answer has come
    has_text: bool = False  # text has come whose thoughts have a field of their own
    usage: AnswerUsage = field(default_factory=AnswerUsage)
    _splitter: ThoughtSplitter = field(init=False)
    _held_echo: str = ""
    _separate: bool = False  # thoughts have a field of their own
    _calls: list[_Call] = field(default_factory=list)
    _first: float = 0.0  # time of the first content
    _last: float = 0.0
    _last_thought: float = 0.0

    def __post_init__(self) -> None:
        self._splitter = ThoughtSplitter(at_start=not self.continues)

    def read(self, chunk: Object) -> Iterator[Delta]:
        """The deltas of a chunk, which has no error; of a whole answer too."""
        if isinstance(model := chunk.get("model"), str) and model:
            self.model = model
        if progress := _progress(chunk.get("prompt_progress")):
            yield progress
        self._use(chunk)
        for choice in map(object_of, rows_of(chunk.get("choices"))):
            if choice and not choice.get("index"):
                for delta in self._choice(choice):
                    self._note(delta)
                    yield self._counted(delta)

    def finish(self) -> Iterator[Delta]:
        """The last deltas of an answer that is complete: what was held back, usage, the end."""
        yield from self._held()
        yield self._timed()
        reason = self.reason or EndReason.END
        if reason is EndReason.END and any(call.given for call in self._calls):
            reason = EndReason.TOOL_CALLS
        used = self.usage.prompt_tokens + self.usage.generated_tokens
        full = self.context and used >= self.context - 1
        short = self.usage.generated_tokens < self.max_tokens if self.max_tokens else True
        if reason is EndReason.LENGTH and short and (full or not self.max_tokens):
            reason = EndReason.CONTEXT
        yield AnswerEnd(reason, self.model)

    def cut(self) -> Iterator[Delta]:
        """The last deltas of an answer that was cut: what was held back, and its usage."""
        yield from self._held()
        yield self._timed()

    # --- steps ----------------------------------------------------------------------------------

    def _held(self) -> Iterator[Delta]:
        for thought, text in self._splitter.finish():
            yield ThoughtDelta(text) if thought else TextDelta(text)
        if self._held_echo:
            yield TextDelta(self._held_echo)

    def _note(self, delta: Written) -> None:
        self.has_content = True
        self._last = self.clock()
        self._first = self._first or self._last
        if isinstance(delta, ThoughtDelta):
            self._last_thought = self._last

    def _counted(self, delta: Written) -> Written:
        """The same with the tokens so far, where the server counts them in every chunk."""
        made = self.usage.generated_tokens
        if not made:
            return delta
        used = self.usage.prompt_tokens + made
        return replace(delta, generated_tokens=made, context_used=used)

    def _choice(self, choice: Object) -> Iterator[Written]:
        delta = object_of(choice.get("delta") or choice.get("message"))
        thoughts = next((text for name in _THOUGHTS if (text := text_of(delta.get(name)))), "")
        thoughts = thoughts or _details(delta.get("reasoning_details"))
        texts = _contents(delta.get("content"))
        if not delta and isinstance(text := choice.get("text"), str):  # of /completions
            texts = [(False, text)]
        if thoughts:
            self._separate = True
            yield ThoughtDelta(thoughts)
        for is_thought, text in texts:
            yield from self._written(is_thought, text)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            yield TextDelta(refusal)
        yield from self._tool_calls(delta)
        reason = choice.get("finish_reason") or choice.get("stop_reason")
        if isinstance(reason, str) and reason:
            self.reason = _REASONS.get(reason.lower(), EndReason.END)
            self._last = self.clock()  # servers count the end token, which has no text

    def _written(self, is_thought: bool, text: str) -> Iterator[Written]:
        """Text of the field `content`, which may have thoughts between tags."""
        if self.echo and not is_thought:
            text = self._held_echo + text
            self._held_echo = ""
            if len(text) < len(self.echo) and self.echo.startswith(text):
                self._held_echo = text
                return
            text, self.echo = text.removeprefix(self.echo), ""
            if not text:
                return
        if is_thought:
            self._separate = True
            yield ThoughtDelta(text)
        elif self._separate:
            for thought, held in self._splitter.finish():
                yield ThoughtDelta(held) if thought else TextDelta(held)
            if text := text if self.has_text else text.lstrip("\n"):
                self.has_text = True
                yield TextDelta(text)
        else:
            for thought, piece in self._splitter.push(text):
                yield ThoughtDelta(piece) if thought else TextDelta(piece)

    def _tool_calls(self, delta: Object) -> Iterator[Written]:
        rows = [row for row in map(object_of, rows_of(delta.get("tool_calls"))) if row]
        if old := object_of(delta.get("function_call")):
            rows = [{"index": 0, "function": old}]
        for at, row in enumerate(rows):
            yield from self._tool_call(row, at if len(rows) > 1 else None)

    def _tool_call(self, row: Object, place: int | None) -> Iterator[Written]:
        function = object_of(row.get("function")) or row
        id, name = text_of(row.get("id")), text_of(function.get("name"))
        key = row.get("index")
        call = self._called(place if key is None else key, id, name)
        arguments = function.get("arguments", function.get("parameters"))
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        call.id, call.name = call.id or id, call.name or name
        if call.given:
            if arguments:
                yield ToolCallDelta(call.index, arguments=arguments)
            return
        call.arguments += arguments or ""
        if call.name:
            yield self._given(call)

    def _called(self, key: object, id: str, name: str) -> _Call:
        """The call that a piece belongs to, perhaps a new one.

        Some servers give every call the index 0, or none: another id is another call. Without
        index and id, a name begins one.
        """
        same = [call for call in self._calls if call.key == key] if key is not None else self._calls
        for call in reversed(same):
            if id and call.id:
                if call.id == id:
                    return call
                continue
            if key is None and name and call.name:
                break
            return call
        call = _Call(len(self._calls), key=key)
        self._calls.append(call)
        return call

    def _given(self, call: _Call) -> ToolCallDelta:
        """The first delta of a call."""
        call.given = True
        call.id = call.id or f"call_{call.index}"
        return ToolCallDelta(call.index, call.id, call.name, call.arguments)

    # --- usage ----------------------------------------------------------------------------------

    def _use(self, chunk: Object) -> None:
        """Read what a chunk says of tokens and times."""
        usage, timings = object_of(chunk.get("usage")), object_of(chunk.get("timings"))
        if usage:
            prompt = object_of(usage.get("prompt_tokens_details"))
            generated = object_of(usage.get("completion_tokens_details"))
            cached = count_of(prompt.get("cached_tokens"))
            self.usage = replace(
                self.usage,
                prompt_tokens=count_of(usage.get("prompt_tokens")),
                generated_tokens=count_of(usage.get("completion_tokens")),
                cached_tokens=cached or count_of(usage.get("prompt_cache_hit_tokens")),
                thought_tokens=count_of(generated.get("reasoning_tokens"))
                or count_of(usage.get("reasoning_tokens")),
            )
        if timings:  # of llama-server
            cached = count_of(timings.get("cache_n")) or self.usage.cached_tokens
            self.usage = replace(
                self.usage,
                cached_tokens=cached,
                prompt_tokens=self.usage.prompt_tokens
                or cached + count_of(timings.get("prompt_n")),
                generated_tokens=max(
                    self.usage.generated_tokens, count_of(timings.get("predicted_n"))
                ),
                prompt_seconds=number_of(timings.get("prompt_ms")) / 1000,
                decode_seconds=number_of(timings.get("predicted_ms")) / 1000,
            )

    def _timed(self) -> AnswerUsage:
        """The usage with the times that were measured here, where the server gives none."""
        first = self._first - self.started if self._first else 0.0
        thought = self._last_thought - self._first if self._last_thought else 0.0
        # Thoughts that are not sent are counted: they were written before the first text.
        is_hidden = self.usage.thought_tokens and not self._last_thought
        began = self.started if is_hidden else self._first
        self.usage = replace(
            self.usage,
            first_token_seconds=first,
            decode_seconds=self.usage.decode_seconds
            or (self._last - began if self._first else 0.0),
            thought_seconds=thought,
        )
        return self.usage


def _contents(content: object) -> list[tuple[bool, str]]:
    """The texts of the field `content`, each with whether it is thought: a text or a list."""
    if isinstance(content, str):
        return [(False, content)] if content else []
    made: list[tuple[bool, str]] = []
    for row in rows_of(content):
        part = object_of(row)
        if thinking := part.get("thinking"):  # Mistral: a text, or a list of them
            inner = _contents(thinking)
            made += [(True, text) for _, text in inner]
        elif isinstance(text := part.get("text"), str) and text:
            made.append((False, text))
        elif isinstance(row, str):
            made.append((False, row))
    return made


def _details(found: object) -> str:
    """The texts of OpenRouter's list of reasoning."""
    rows = map(object_of, rows_of(found))
    return "".join(text_of(row.get("text")) or text_of(row.get("summary")) for row in rows)


def _progress(found: object) -> PromptProgressDelta | None:
    """The progress of llama-server."""
    progress = object_of(found)
    total = count_of(progress.get("total"))
    return PromptProgressDelta(count_of(progress.get("processed")), total) if total else None
