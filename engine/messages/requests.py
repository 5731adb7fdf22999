"""Requests to the engine: `engine.client.Engine.submit` gives each its id.

`model` is the file of a resident model; None: the main one, which is the last loaded one that was
not loaded beside others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.messages.values import (
    DEFAULT_CACHE,
    AdapterUse,
    CacheType,
    Constraint,
    ContextPolicy,
    DraftKind,
    ImagePart,
    Infill,
    Pooling,
    Sampling,
    Tool,
    ToolChoice,
    Turn,
)


@dataclass(frozen=True, slots=True)
class Load:
    """Load a model file in place of the main model, or beside it.

    Beside others, models that were idle longest are unloaded if it does not fit otherwise, but never
    the main one. One that is resident with the same options is ready at once.
    """

    path: Path
    context: int = 0  # tokens; 0: the usual length on this computer, or what fits
    threads: int = 0  # 0: physical cores
    cache: CacheType = DEFAULT_CACHE
    tokenizer: Path | None = None  # a tokenizer.json that replaces the file's vocabulary
    backend: str = ""  # "cpu", "reference", "cuda", "metal", "torch:DEVICE"; "": the preferred one
    # What it runs on, where neither `backend` nor `placement` is given: "" automatic, "cpu" the
    # processor, "gpu" the one with the most free memory, "cuda:1" a certain one, "split" the GPU with
    # as many layers as fit. The processor has what a device cannot run; `ModelLoaded.moved` says why.
    device: str = ""
    # Backends of consecutive layers and how many each has, the last 0: the rest. Empty: `backend`.
    placement: tuple[tuple[str, int], ...] = ()
    embeddings: bool = False  # also a model that only makes these, or scores documents
    ids_only: bool = (
        False  # it is given token ids alone: also a model without a readable vocabulary
    )
    # The most that the model may take; 0: nine tenths of the free memory. Layers that do not fit are
    # read from the file for every pass.
    memory_bytes: int = 0
    beside: bool = False  # the main model stays
    # A chat template in Jinja, or the name of a built-in one, in place of the file's.
    template: str = ""
    parallel: int = 0  # answers that are generated at once, others wait; 0: as many as can be
    # The file of a picture encoder (mmproj); None: one that fits, beside the model's file.
    encoder: Path | None = None


@dataclass(frozen=True, slots=True)
class FindDevices:
    """Find the devices of this computer beside the processor."""


@dataclass(frozen=True, slots=True)
class Unload:
    """Unload a model and return its memory to the system."""

    model: Path | None = None


@dataclass(frozen=True, slots=True)
class Chat:
    """Generate the answer to a conversation, formatted by the model's chat template.

    When the last turn is the assistant's, its text is continued instead of answered. The prefix
    that the prompt shares with any cached text is not computed again. Several requests are carried
    out at the same time.
    """

    turns: tuple[Turn, ...]
    sampling: Sampling = Sampling()
    max_tokens: int = 0  # 0: until an end token or a full context
    stop: tuple[str, ...] = ()
    thinking: bool | None = None  # None: the template's default
    # Tokens of thoughts, after which the marker that ends them is written for the model; 0: none,
    # as without thinking; None: no limit. `max_tokens` then only counts the answer behind them.
    thinking_budget: int | None = None
    policy: ContextPolicy = ContextPolicy.STOP
    conversation: str = ""  # id, as in Save
    adapters: tuple[AdapterUse, ...] | None = None  # None: those of the last SetAdapters
    answers: int = 1  # to the one prompt, each with its own events
    # An answer that repeats itself ends, unless it has a constraint or its end tokens are ignored.
    stop_loops: bool = True
    drafts: DraftKind = DraftKind.NONE
    constraint: Constraint | None = None
    logprobs: int = 0  # of so many most likely tokens, in the Text events; 0: none
    sampled_logprobs: bool = False  # after sampling parameters and constraint, not the model's own
    tools: tuple[Tool, ...] = ()  # that the model may call: see ToolCallDelta
    tool_choice: ToolChoice | str = ToolChoice.AUTO
    parallel_tool_calls: bool = True  # the answer may have several calls
    # Variables of the chat template, of JSON values; `enable_thinking` is `thinking` where that is None.
    template_arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    # Of all snapshots together, as in Save: what memory does not hold of this conversation
    # is written there. 0: nothing is written any more; None: as the last request said.
    budget_bytes: int | None = None
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class Complete:
    """Continue a text, or token ids, or fill a gap, without the chat template; otherwise as Chat.

    No token ids, with a conversation, stand for the text that was saved last with it.
    """

    prompt: str | tuple[int, ...] | Infill
    sampling: Sampling = Sampling()
    max_tokens: int = 0  # 0: until an end token or a full context
    stop: tuple[str, ...] = ()
    conversation: str = ""
    adapters: tuple[AdapterUse, ...] | None = None
    answers: int = 1
    stop_loops: bool = True
    drafts: DraftKind = DraftKind.NONE
    constraint: Constraint | None = None
    logprobs: int = 0
    sampled_logprobs: bool = False
    parses_special: bool = True  # control texts such as `<|im_end|>` are the tokens of these names
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class SetAdapters:
    """Replace the adapter stack, the first applied first; an empty one clears it.

    It applies to the answers requested after it. Loaded adapter files are not read again. Texts
    processed with other adapters stay cached. A newly loaded model has no adapters.
    """

    adapters: tuple[AdapterUse, ...]
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class SetDraft:
    """Load a draft model beside the loaded model, in place of another; None: unload it.

    Answers with `DraftKind.MODEL` use it. A newly loaded model has none.
    """

    path: Path | None
    device: str | None = None  # as in Load; None: where the loaded model begins
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class Restore:
    """Restore the saved KV cache that shares the longest prefix with a conversation.

    Without turns and without a text it is the text that was saved last with the conversation.
    """

    turns: tuple[Turn, ...]
    conversation: str  # the id given to Save
    policy: ContextPolicy = ContextPolicy.STOP
    adapters: tuple[AdapterUse, ...] | None = None  # None: those of the last SetAdapters
    model: Path | None = None
    text: str = ""  # in place of turns: continued without the chat template
    tools: tuple[Tool, ...] = ()  # that the conversation is told of, as in Chat


@dataclass(frozen=True, slots=True)
class Save:
    """Write the cached context of a text in the background, unless it is saved already.

    The text is that of an answer, once it has ended, or that of `turns`. Nothing is saved with an
    answer of another conversation.
    """

    conversation: str  # id of the conversation it belongs to
    budget_bytes: int  # of all snapshots together; the least recently used are evicted
    answer: int = 0  # id of the request whose answer's context is saved; 0: that of `turns`
    turns: tuple[Turn, ...] = ()
    adapters: tuple[AdapterUse, ...] | None = (
        None  # of `turns`; None: those of the last SetAdapters
    )
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    """Give up the cached context of an answer that has ended, but for what other texts share.

    What Save has written stays.
    """

    answer: int  # id of its request
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class CountTokens:
    """Count the tokens of a text that is being written, and those of pictures beside it."""

    text: str
    model: Path | None = None
    images: tuple[ImagePart, ...] = ()


@dataclass(frozen=True, slots=True)
class Tokenize:
    """Split a text into tokens."""

    text: str
    adds_special: bool = False  # the token that begins a text too, if the model has one
    parses_special: bool = True  # as in Complete
    with_pieces: bool = False
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class Detokenize:
    """Join tokens to a text, control tokens by their names."""

    ids: tuple[int, ...]
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class ApplyTemplate:
    """Render a conversation as Chat does; its options are those of Chat."""

    turns: tuple[Turn, ...]
    thinking: bool | None = None
    policy: ContextPolicy = ContextPolicy.STOP
    tools: tuple[Tool, ...] = ()
    template_arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    model: Path | None = None
    begins_answer: bool = True  # False: the turns as they are, without the beginning of one
    measures_cache: bool = False  # also how much of it Chat would not have to read again
    adapters: tuple[AdapterUse, ...] | None = None  # of that; None: those of the last SetAdapters


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """Check whether a constraint can be used; needs no model, but is exact only with one."""

    constraint: Constraint
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class Embed:
    """Compute a vector for each text, or each token; beside answers, a pass of one and of the other.

    A text has the same vector alone and among others, bit for bit.
    """

    texts: tuple[str, ...]
    pooling: Pooling | None = None  # None: as the file says
    model: Path | None = None
    adapters: tuple[AdapterUse, ...] | None = None  # None: those of the last SetAdapters
    cuts: bool = (
        False  # of a text longer than the context its beginning is read; else it is refused
    )


@dataclass(frozen=True, slots=True)
class Rerank:
    """Score how well each document answers a query, by a model that was made to; as for Embed."""

    query: str
    documents: tuple[str, ...]
    model: Path | None = None
    adapters: tuple[AdapterUse, ...] | None = None  # None: those of the last SetAdapters


@dataclass(frozen=True, slots=True)
class Score:
    """Compute the log probability of each token of a text after those before it; it stays cached."""

    text: str | tuple[int, ...]  # a text is tokenized as a prompt is, token ids are taken as given
    logprobs: int = 1  # of so many most likely tokens in each place
    adapters: tuple[AdapterUse, ...] | None = None  # None: those of the last SetAdapters
    model: Path | None = None
    start: int = 0  # position of the first token that is scored; those before it are only read


@dataclass(frozen=True, slots=True)
class ComputeLogits:
    """Compute the logits after some tokens of a text; the text stays cached."""

    text: str | tuple[int, ...]  # as for Score
    positions: tuple[int, ...]  # of the tokens, from 0
    most: int = 0  # the highest in each place; 0: all
    with_pieces: bool = False
    adapters: tuple[AdapterUse, ...] | None = None  # None: those of the last SetAdapters
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class MeasureSpeed:
    """Measure how fast a model reads a prompt and generates, alone: no other request goes on.

    Both begin behind `depth` tokens. The bandwidth of the memory is measured beside each decode.
    """

    prompt: int  # tokens
    generated: int  # tokens, each in a pass of its own
    depth: int = 0  # tokens that are cached before
    repetitions: int = 3
    adapters: tuple[AdapterUse, ...] | None = None  # None: those of the last SetAdapters
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """Read the metrics of a model."""

    model: Path | None = None


Request = (
    Load
    | FindDevices
    | Unload
    | Chat
    | Complete
    | SetAdapters
    | SetDraft
    | Restore
    | Save
    | Forget
    | CountTokens
    | Tokenize
    | Detokenize
    | ApplyTemplate
    | Embed
    | Rerank
    | Score
    | ComputeLogits
    | MeasureSpeed
    | CheckConstraint
    | Metrics
)
