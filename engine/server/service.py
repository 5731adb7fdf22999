"""Service: what every API of the server does with the engine, one way for all shapes of requests."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from engine.client import Engine
from engine.messages import (
    AdapterUse,
    ApplyTemplate,
    Chat,
    Complete,
    ContextPolicy,
    Detokenize,
    Detokenized,
    DraftKind,
    Embed,
    Embedded,
    Finished,
    FinishReason,
    Infill,
    Metrics,
    MetricsRead,
    Pooling,
    PromptProgress,
    Rerank,
    Reranked,
    Role,
    Sampling,
    Score,
    Scored,
    TemplateApplied,
    Text,
    Thought,
    Tokenize,
    Tokenized,
    TokenLogprobs,
    ToolCallDelta,
    Turn,
)
from engine.messages.reasoning_markers import resolved_thinking
from engine.server.activity import MOST_TEXT, Activity, Exchange, Recorder
from engine.server.bridge import answer, events
from engine.server.errors import ApiError
from engine.server.facts import Facts
from engine.server.models import KEEP_SECONDS, MainModel, ModelCard, Models
from engine.server.slots import Slots, SlotText
from engine.server.values import (
    Begun,
    CallDelta,
    Content,
    Delta,
    Done,
    Progress,
    Reasoning,
    Timings,
    Usage,
    Wanted,
)

_ENDED = "The owner of this server ended the answer."


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How the service uses the engine."""

    folders: Callable[[], Sequence[Path]] = lambda: ()  # of models, beside the models folder
    keep_seconds: float = KEEP_SECONDS  # that a model stays loaded after its last answer; <0: ever
    loads: bool = True  # models are loaded when a client names them
    context: int = 0  # tokens of models loaded so; 0: as the app chooses
    aliases: tuple[str, ...] = ()  # names of the main model, the first shown; "*": any unknown one
    tags: tuple[str, ...] = ()  # words about the main model, for lists
    main: MainModel | None = None  # None: others load and unload the main model
    adapters: tuple[AdapterUse, ...] = ()  # of the main model, as /lora-adapters lists them
    keeps_texts: bool = False  # in the log
    # What holds where a request says nothing.
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])  # fields of `Sampling`
    max_tokens: int = 0  # of an answer; 0: no limit
    thinking: bool | None = None  # None: the template's default
    thinking_budget: int | None = None  # tokens; None: no limit
    pooling: Pooling | None = None  # of embeddings; None: as the model file says
    drafts: DraftKind = DraftKind.NONE  # for answers of the main model
    shows_slots: bool = True  # by /slots
    shows_prompts: bool = False  # in responses to chats, as the model reads them
    saves_slots: bool = False  # clients may save cached texts and restore them
    shows_metrics: bool = True  # by /metrics


class Service:
    """The engine as the APIs see it; used on the server's event loop."""

    def __init__(self, engine: Engine, options: ServiceOptions | None = None) -> None:
        self.options = options = options or ServiceOptions()
        self.engine = engine
        self.recorder = Recorder(options.keeps_texts)
        self.facts = Facts()
        self.adapters = list(options.adapters)
        self.slots = Slots()
        self.models = Models(
            engine,
            options.folders,
            keep_seconds=options.keep_seconds,
            loads=options.loads,
            context=options.context,
            aliases=options.aliases,
            tags=options.tags,
            main=options.main,
        )

    def begin(self) -> None:
        """The server listens; on its event loop."""
        self.models.begin()

    async def close(self) -> None:
        """End what runs on the event loop."""
        await self.models.close()

    def end_answers(self) -> None:
        """End the answers in progress, whose clients are told so; from any thread."""
        for one in self.recorder.snapshot().clients:
            self.engine.leave(one.client.key)

    def activity(self) -> Activity:
        """Who is connected, requests so far and the log; from any thread."""
        return self.recorder.snapshot()

    async def cards(self) -> list[ModelCard]:
        """The models that clients may name, the main one first."""
        return await self.models.cards()

    async def generate(self, wanted: Wanted) -> AsyncGenerator[Delta, None]:
        """The deltas of the answers: `Begun` first, and `Done` at the end of each answer.

        Closing the generator, or cancelling its task, cancels the request in the engine. Raises
        ApiError and EngineError, before `Begun` where the request is at fault.
        """
        wanted = self._completed(wanted)
        async with AsyncExitStack() as stack:
            use = self.models.use(wanted.model, wanted.keep_seconds)
            card = await stack.enter_async_context(use)
            assert card.loaded is not None
            if isinstance(wanted.prompt, Infill) and not card.loaded.can_infill:
                message = f"The model {card.name} has no tokens that fill a gap in a text."
                raise ApiError(501, message, code="not_supported", param="model")
            wanted = _without_unseen(wanted, card)
            request = self._request(await self._biased(wanted, card), card)
            splitters = [_Splitter(at) for at in range(wanted.answers)]
            began = 0.0  # when the prompt was first read
            slot = stack.enter_context(self.slots.taken(wanted.slot))
            stream = aclosing(events(self.engine, request, wanted.client.key))
            async for event in await stack.enter_async_context(stream):
                if isinstance(event, PromptProgress):
                    now = time.perf_counter()
                    if not began:
                        began = now
                        prompt, cached = event.total_tokens, event.reused_tokens
                        begun = Begun(card.name, prompt, cached, request.sampling, slot)
                        self._note(wanted, begun)
                        yield begun
                    if wanted.reports_progress:
                        yield _progress(event, now - began)
                elif isinstance(event, Text | Thought):
                    if (delta := splitters[event.answer].push(event)) is not None:
                        self._note(wanted, delta)
                        yield delta
                elif isinstance(event, ToolCallDelta):
                    yield _call(event)
                elif isinstance(event, Finished):
                    if event.reason is FinishReason.CANCELLED:  # not by this client
                        raise ApiError(503, _ENDED, code="answer_ended", retry_seconds=1.0)
                    text = SlotText(event.request, event.context_used, card.path)
                    self.slots.note(slot, text)
                    done = _done(event, wanted.stop)
                    self._note(wanted, done)
                    yield done

    async def count(self, wanted: Wanted) -> int:
        """The tokens of a prompt, with the markup of its turns and tools; raises as `generate`."""
        return (await self.apply_template(wanted)).tokens

    async def read(self, wanted: Wanted) -> tuple[str, Done]:
        """The name of the model and the end of an answer without tokens to a prompt."""
        if isinstance(wanted.prompt, Infill):  # editors have it read before they ask
            return await self._warmed(wanted)
        async with self.models.use(wanted.model, wanted.keep_seconds) as card:
            prompt = wanted.prompt or ""
            if isinstance(prompt, str):
                request = Tokenize(prompt, adds_special=True, model=card.path)
                prompt = (await answer(self.engine, request, Tokenized, wanted.client.key)).ids
            done = Done(0, FinishReason.LENGTH, Usage(len(prompt)), Timings())
            self._note(wanted, Begun(card.name, len(prompt), 0))
        return card.name, done

    async def _warmed(self, wanted: Wanted) -> tuple[str, Done]:
        """As `read`, with the prompt in the cache."""
        name, done = "", Done(0, FinishReason.LENGTH, Usage(), Timings())
        async with aclosing(self.generate(replace(wanted, max_tokens=1))) as deltas:
            async for delta in deltas:
                if isinstance(delta, Begun):
                    name = delta.model
                elif isinstance(delta, Done):
                    done = replace(delta, usage=replace(delta.usage, generated=0))
        return name, replace(done, finish_reason=FinishReason.LENGTH)

    async def score(self, wanted: Wanted) -> tuple[TokenLogprobs, ...]:
        """The tokens of a prompt with their log probabilities; the first one's is 0."""
        assert wanted.prompt is not None
        assert not isinstance(wanted.prompt, Infill), "a gap has no text to score"
        async with self.models.use(wanted.model, wanted.keep_seconds) as card:
            adapters = self.adapters_of(card) if wanted.adapters is None else wanted.adapters
            request = Score(wanted.prompt, max(wanted.logprobs, 1), adapters, model=card.path)
            return (await answer(self.engine, request, Scored, wanted.client.key)).tokens

    async def tokenize(
        self,
        model: str,
        text: str,
        *,
        adds_special: bool = False,
        parses_special: bool = True,
        with_pieces: bool = False,
    ) -> tuple[ModelCard, Tokenized]:
        """The model and the tokens of a text; raises ApiError and EngineError."""
        async with self.models.use(model) as card:
            request = Tokenize(text, adds_special, parses_special, with_pieces, card.path)
            return card, await answer(self.engine, request, Tokenized)

    async def detokenize(self, model: str, ids: tuple[int, ...]) -> str:
        """The text of tokens; raises ApiError and EngineError."""
        async with self.models.use(model) as card:
            return (await answer(self.engine, Detokenize(ids, card.path), Detokenized)).text

    async def apply_template(self, wanted: Wanted) -> TemplateApplied:
        """A conversation as the model reads it; raises ApiError and EngineError."""
        wanted = self._completed(wanted)
        async with self.models.use(wanted.model, wanted.keep_seconds) as card:
            wanted = _without_unseen(wanted, card)
            thinking, _ = resolved_thinking(wanted.thinking, wanted.thinking_budget)
            request = ApplyTemplate(
                wanted.turns,
                thinking,
                tools=wanted.tools,
                template_arguments=wanted.template_arguments,
                model=card.path,
                begins_answer=wanted.begins_answer,
            )
            return await answer(self.engine, request, TemplateApplied, wanted.client.key)

    async def embed(
        self,
        model: str,
        texts: Sequence[str],
        exchange: Exchange,
        *,
        size: int = 0,
        keep_seconds: float | None = None,
    ) -> tuple[str, Embedded]:
        """The name of the model and the vectors of texts; raises ApiError and EngineError.

        `size` is how many of the first numbers are kept, 0: all; the vectors have the length 1.
        """
        async with self.models.use(model, keep_seconds) as card:
            request = Embed(tuple(texts), self.options.pooling, card.path)
            found = await answer(self.engine, request, Embedded, exchange.client.key)
        exchange.model, exchange.prompt_tokens = card.name, found.tokens
        if size:
            vectors = tuple(_shortened(one, size) for one in found.vectors)
            found = replace(found, vectors=vectors)
        return card.name, found

    async def rerank(
        self, model: str, query: str, documents: Sequence[str], exchange: Exchange
    ) -> tuple[str, Reranked]:
        """The name of the model and the scores of documents; raises ApiError and EngineError."""
        async with self.models.use(model) as card:
            request = Rerank(query, tuple(documents), card.path)
            found = await answer(self.engine, request, Reranked, exchange.client.key)
        exchange.model, exchange.prompt_tokens = card.name, found.tokens
        return card.name, found

    async def metrics(self, model: str) -> MetricsRead:
        """Metrics of a loaded model, or of the main one that sleeps; without one memory and disk."""
        if model:
            async with self.models.use(model) as card:
                return await answer(self.engine, Metrics(card.path), MetricsRead)
        first = next((one.path for one in self.engine.resident), None)
        now = await answer(self.engine, Metrics(first), MetricsRead)
        if first is not None or (before := self.models.before_sleep) is None:
            return now
        memory = {"active_page_bytes": 0, "cached_page_bytes": 0, "device_bytes": now.device_bytes}
        memory |= {"saved_page_bytes": now.saved_page_bytes, "resident_bytes": now.resident_bytes}
        return replace(before, **memory)

    def change(self, keep_seconds: float, *, keeps_texts: bool) -> None:
        """Change how long models are kept, and whether the log has texts; from any thread."""
        self.models.keep_seconds = keep_seconds
        self.recorder.keep_texts(keeps_texts)

    async def _biased(self, wanted: Wanted, card: ModelCard) -> Wanted:
        """The same with the biases of texts as biases of their tokens."""
        if not wanted.text_biases:
            return wanted
        found: list[tuple[int, float]] = list(wanted.sampling.get("logit_bias", ()))
        for text, bias in wanted.text_biases:
            split = await answer(self.engine, Tokenize(text, model=card.path), Tokenized)
            found += [(token, bias) for token in split.ids]
        return replace(wanted, sampling={**wanted.sampling, "logit_bias": tuple(found)})

    def drawn(self, card: ModelCard, given: Mapping[str, Any] | None = None) -> Sampling:
        """The sampling of an answer: as given, else the server's, else as the model recommends."""
        base = (card.loaded.sampling if card.loaded is not None else None) or Sampling()
        return replace(base, **{**self.options.sampling, **(given or {})})

    def limit(self, max_tokens: int) -> int:
        """The most tokens of an answer, 0: no limit; a request that does not say wants 0."""
        return max_tokens or self.options.max_tokens

    def _completed(self, wanted: Wanted) -> Wanted:
        """The same with what holds where the request says nothing."""
        # Templates that ask for the date and are not told it write one of 2024.
        today = {"date_string": f"{date.today():%d %b %Y}"}
        arguments = today | dict(wanted.template_arguments)
        limit = self.limit(wanted.max_tokens)
        wanted = replace(wanted, max_tokens=limit, template_arguments=arguments)
        if wanted.thinking is not None or wanted.thinking_budget is not None:
            return wanted
        options = self.options
        return replace(wanted, thinking=options.thinking, thinking_budget=options.thinking_budget)

    def _request(self, wanted: Wanted, card: ModelCard) -> Chat | Complete:
        """The engine's request of an answer."""
        drawn = self.drawn(card, wanted.sampling)
        adapters = self.adapters_of(card) if wanted.adapters is None else wanted.adapters
        drafts = self.options.drafts if card.is_main else DraftKind.NONE
        if wanted.prompt is not None:
            return Complete(
                wanted.prompt,
                drawn,
                max_tokens=wanted.max_tokens,
                stop=wanted.stop,
                adapters=adapters,
                answers=wanted.answers,
                stop_loops=False,
                constraint=wanted.constraint,
                logprobs=wanted.logprobs,
                sampled_logprobs=wanted.sampled_logprobs,
                drafts=drafts,
                model=card.path,
            )
        return Chat(
            wanted.turns,
            drawn,
            max_tokens=wanted.max_tokens,
            stop=wanted.stop,
            thinking=wanted.thinking,
            thinking_budget=wanted.thinking_budget,
            adapters=adapters,
            answers=wanted.answers,
            stop_loops=False,
            constraint=wanted.constraint,
            logprobs=wanted.logprobs,
            sampled_logprobs=wanted.sampled_logprobs,
            drafts=drafts,
            tools=wanted.tools,
            tool_choice=wanted.tool_choice,
            parallel_tool_calls=wanted.parallel_tool_calls,
            template_arguments=wanted.template_arguments,
            policy=ContextPolicy.DROP_OLDEST if wanted.drops_oldest else ContextPolicy.STOP,
            model=card.path,
        )

    def _note(self, wanted: Wanted, delta: Delta) -> None:
        """Write a delta into the log."""
        if (exchange := wanted.exchange) is None:
            return
        match delta:
            case Begun(model, prompt, cached):
                exchange.model = model
                exchange.prompt_tokens, exchange.cached_tokens = prompt, cached
                if self.recorder.keeps_texts:
                    last = wanted.turns[-1].text if wanted.turns else wanted.prompt
                    last = last.prefix if isinstance(last, Infill) else last
                    exchange.prompt = last[-MOST_TEXT:] if isinstance(last, str) else ""
            case Content(text) if self.recorder.keeps_texts:
                exchange.answer += text[: MOST_TEXT - len(exchange.answer)]
            case Done(usage=usage):
                exchange.generated_tokens += usage.generated
            case _:
                pass

    def adapters_of(self, card: ModelCard) -> tuple[AdapterUse, ...] | None:
        """The adapters of answers whose requests name none; None: those of the engine."""
        if not self.adapters or not card.is_main:
            return None
        return tuple(one for one in self.adapters if one.strength)


def _without_unseen(wanted: Wanted, card: ModelCard) -> Wanted:
    """The same for a model that sees; for others a note for each picture of a tool's result.

    Raises ApiError for a picture of the user that the model does not see.
    """
    if card.sees or not any(turn.images for turn in wanted.turns):
        return wanted
    if any(turn.images for turn in wanted.turns if turn.role is not Role.TOOL):
        message = f"The model {card.name} reads text only, and cannot see the pictures of the chat."
        raise ApiError(400, message, code="not_supported", param="model")
    return replace(wanted, turns=tuple(map(_without_pictures, wanted.turns)))


def _without_pictures(turn: Turn) -> Turn:
    """The results of tools with a note in place of each picture: it must not end the chat."""
    if not (count := len(turn.images)):
        return turn
    (result,) = turn.results
    texts = [result.text] if result.text else []
    text = "\n\n".join([*texts, *["[a picture, which this model cannot read]"] * count])
    return Turn(turn.role, (replace(result, text=text),))


def new_id(prefix: str) -> str:
    """An id for an answer or a call: "chatcmpl-" and 24 random characters."""
    return f"{prefix}{secrets.token_hex(12)}"


def _shortened(vector: tuple[float, ...], size: int) -> tuple[float, ...]:
    """The first `size` numbers of a vector, of length 1 again."""
    first = vector[:size]
    length = math.hypot(*first) or 1.0
    return tuple(one / length for one in first)


def _progress(event: PromptProgress, seconds: float) -> Progress:
    return Progress(event.done_tokens, event.total_tokens, event.reused_tokens, seconds)


def _call(event: ToolCallDelta) -> CallDelta:
    return CallDelta(
        event.index, event.id, event.name, event.arguments, event.answer, event.generated_tokens
    )


def _done(event: Finished, stops: Sequence[str]) -> Done:
    """The end of an answer; a stop string of the template, not of the client, is the model's end."""
    reason, stop = event.reason, event.stop
    if reason is FinishReason.STOP and stop not in stops:
        reason, stop = FinishReason.END, ""
    usage = Usage(
        event.prompt_tokens, event.reused_tokens, event.generated_tokens, event.thought_tokens
    )
    timings = Timings(
        event.prefill_seconds,
        event.decode_seconds,
        event.first_token_seconds,
        event.drafted_tokens,
        event.accepted_tokens,
    )
    return Done(event.answer, reason, usage, timings, event.seed, stop)


class _Splitter:
    """The reasoning and the content of one answer, without the line breaks that begin them."""

    def __init__(self, answer: int) -> None:
        self._answer = answer
        self._is_thought = False  # the last event was
        self._strips = False  # the text behind a marker has not begun

    def push(self, event: Text | Thought) -> Reasoning | Content | None:
        """The delta of an event; None for one without text and tokens."""
        is_thought = isinstance(event, Thought)
        if is_thought is not self._is_thought:
            self._is_thought, self._strips = is_thought, True
        text = event.text.lstrip("\n") if self._strips else event.text
        self._strips = self._strips and not text
        if not text and not event.logprobs:
            return None
        kind, count = Reasoning if is_thought else Content, event.generated_tokens
        return kind(text, self._answer, event.logprobs, count)
