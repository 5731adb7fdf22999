"""Events from the engine thread; each carries the id of the request that it answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.errors import OTHER_FAULT, Fault
from engine.messages.values import (
    DEFAULT_CACHE,
    AdapterInfo,
    Blindness,
    CacheType,
    DeviceInfo,
    DevicePart,
    DeviceRefusal,
    FinishReason,
    Histogram,
    LogitsRow,
    Pooling,
    Sampling,
    SlowPart,
    TokenLogprobs,
)

NO_VALUES = Histogram((), (0,), 0.0)


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Bytes of the model loaded so far."""

    request: int
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """The model is loaded and ready."""

    request: int
    path: Path
    name: str
    architecture: str
    layout: str  # of most weights: "4-bit, groups of 32"
    parameters: int
    context: int  # tokens
    file_bytes: int
    memory_bytes: int  # of the model with a full context, see `engine.loading.memory`
    # Backends in use, for the status line: "cpu avx512", "layers 1-12: cpu avx512, 13-24: torch cpu".
    kernels: str
    slow: tuple[SlowPart, ...]  # empty: every part has its fast path
    seconds: float
    resident_bytes: int = 0  # memory of the whole process, measured now
    held_bytes: int = 0  # of the model now, with an empty context: what unloading it frees
    cache: CacheType = DEFAULT_CACHE
    template: str = ""  # name of the built-in template in use; "": the file's template
    template_problem: str = ""  # why the template cannot be used for a chat, or not fully
    vocabulary: str = ""  # origin of the vocabulary; "": the file's metadata
    format: str = ""  # as users know it: "Q4_1", "Q4_K_M"
    base: bool = False  # continues text; it was not trained to chat
    has_thinking_switch: bool = False  # `Chat.thinking` changes the prompt
    can_think: bool = False  # the template knows thoughts, which a budget can end
    can_call: bool = False  # the template knows tools: the model was trained to call them
    sampling: Sampling | None = None  # that the file recommends
    sampling_fields: tuple[str, ...] = ()  # of `sampling` that it sets
    sampling_unusable: tuple[str, ...] = ()  # its keys of sampling that mean nothing, with values
    offloaded_layers: int = 0  # not in memory
    offloaded_bytes: int = 0  # of these, read from the file for each token
    offloaded_experts: bool = False  # of these, only the experts that a token uses
    offloaded_seconds: float = (
        0.0  # that this takes by the measured speed of the disk; 0: not known
    )
    runs_on: tuple[DevicePart, ...] = ()  # in the order of the layers
    moved: DeviceRefusal | None = None  # why it does not run, or not all, where it was asked to
    beside: bool = False  # it is not the main model
    template_source: str = ""  # the chat template in Jinja
    begin: str = ""  # text of the token that begins a text; "": there is none
    end: str = ""  # text of the token that ends one
    parallel: int = 0  # answers that are generated at once
    can_infill: bool = False  # its vocabulary has the tokens that fill a gap in a text
    encoder: Path | None = None  # the file that it sees pictures with; None: it sees none
    blind: Blindness | None = None  # why it sees none although there is such a file


@dataclass(frozen=True, slots=True)
class ModelMoved:
    """The device failed or ran out of memory: the model runs on the processor now.

    Answers in progress go on from their text.
    """

    request: int  # 0
    loaded: ModelLoaded  # the model as it is now; `moved` says why


@dataclass(frozen=True, slots=True)
class DevicesFound:
    """The devices of this computer beside the processor, the preferred one first."""

    request: int
    devices: tuple[DeviceInfo, ...]


@dataclass(frozen=True, slots=True)
class ModelUnloaded:
    """A model was unloaded; after a failed load, there is no main model any more."""

    request: int
    freed_bytes: int = 0  # measured decrease of the process's memory
    resident_bytes: int = 0  # memory of the whole process, measured now
    path: Path | None = None  # of its file; None: there was none


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """Prefill progress: prompt tokens processed so far."""

    request: int
    done_tokens: int
    total_tokens: int
    reused_tokens: int  # of done_tokens, those that were cached already
    dropped_turns: int = 0  # left out of the prompt: the first ones after the instructions


@dataclass(frozen=True, slots=True)
class Text:
    """The answer grew by a token or by buffered text; never splits a character."""

    request: int
    text: str  # empty for a token without text, or whose text is still buffered
    generated_tokens: int  # so far
    context_used: int  # tokens
    answer: int = 0  # of several answers to one prompt
    # Of the tokens since the last event, if asked for; their text may still be buffered.
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Thought:
    """The model's reasoning grew, which comes before the answer; as for Text.

    It has no markers; white space beside them is as the model wrote it. `TaggedText` puts the usual
    tags around it.
    """

    request: int
    text: str  # empty for a token without text, or whose text is still buffered
    generated_tokens: int  # so far
    context_used: int  # tokens
    answer: int = 0  # of several answers to one prompt
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A tool call of the answer began or grew; only answers to requests with tools have some."""

    request: int
    index: int  # of the call in the answer, from 0
    id: str  # in the first delta of a call; "" in others
    name: str  # likewise
    arguments: str  # the next piece of a JSON object; the pieces of an ended call joined are valid
    generated_tokens: int  # so far
    context_used: int  # tokens
    answer: int = 0  # of several answers to one prompt


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete, or was stopped."""

    request: int
    reason: FinishReason
    prompt_tokens: int
    reused_tokens: int
    generated_tokens: int
    prefill_seconds: float
    decode_seconds: float  # from the first token to the last
    context_used: int  # tokens
    seed: int = -1  # that gives this answer again; -1: none was drawn
    answer: int = 0  # of several answers to one prompt
    last: bool = True  # the request is over; False: other answers to the prompt go on
    drafted_tokens: int = 0  # verified
    accepted_tokens: int = 0  # of these
    draft_gain: float = 0.0  # estimated speed relative to an answer without drafts; 0: no drafts
    incomplete: bool = False  # it ended before it was what its constraint asks for
    forced_tokens: int = 0  # that the constraint left no choice about: read without being drawn
    first_token_seconds: float = 0.0  # time to first token: from the request; 0: there was none
    # Time of a token after those of the first pass: the tokens of a pass come together, and each
    # has an equal share of the time since the tokens before. Within a sixteenth; 0: none was timed.
    token_seconds_p50: float = 0.0
    token_seconds_p95: float = 0.0
    thought_tokens: int = 0  # without markers, and with those of a text that is continued
    thought_seconds: float = 0.0  # of the generated ones
    thought_budget_reached: bool = False  # the budget ended the thoughts
    stop: str = ""  # the stop string that ended it
    token_ids: tuple[int, ...] = ()  # generated, without the end token

    @property
    def tokens_per_second(self) -> float:
        """Speed after the first token, which comes with the prompt; 0: there was no other one."""
        return (self.generated_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True, slots=True)
class DraftSet:
    """The draft model in use."""

    request: int
    path: Path | None  # None: there is none
    name: str = ""
    memory_bytes: int = 0  # with a full context


@dataclass(frozen=True, slots=True)
class AdaptersSet:
    """The adapter stack in effect; `adapters` are in the order of the request."""

    request: int
    adapters: tuple[AdapterInfo, ...]
    changed: bool  # whether the stack now has another effect on answers


@dataclass(frozen=True, slots=True)
class SnapshotLoaded:
    """How much of the conversation is in the KV cache now, restored or cached before."""

    request: int
    restored_tokens: int  # from a file; 0: there was none, or the session had more cached
    ready_tokens: int  # of the conversation, that are cached
    total_tokens: int  # of the conversation
    seconds: float  # duration of the restore
    remaining_prefill_seconds: float  # estimate for the tokens not cached; 0: too few
    refused: str  # one sentence: why the saved file was rejected; empty: none was
    dropped_turns: int = 0  # that do not fit: the first ones after the instructions
    fault: Fault = OTHER_FAULT  # `refused` as a code
    token_ids: tuple[int, ...] = ()  # of the text; empty for turns


@dataclass(frozen=True, slots=True)
class SnapshotSaved:
    """The session is on disk; later requests may finish before this event."""

    request: int
    tokens: int  # 0: there was nothing new to save
    size_bytes: int  # written; what was on the disk before is not written again
    seconds: float
    evicted: int  # number of older snapshots deleted to meet the budget


@dataclass(frozen=True, slots=True)
class TextForgotten:
    """So many tokens are not cached any more; 0: nothing was known of the answer."""

    request: int
    tokens: int


@dataclass(frozen=True, slots=True)
class TokensCounted:
    """The number of tokens of a text, without the markup of a message."""

    request: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Tokenized:
    """The tokens of a text."""

    request: int
    ids: tuple[int, ...]
    # Of each token, if asked for: its bytes, each as the character of that number.
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Detokenized:
    """The text of tokens; bytes that are no UTF-8 are U+FFFD."""

    request: int
    text: str


@dataclass(frozen=True, slots=True)
class TemplateApplied:
    """A conversation as the model reads it."""

    request: int
    text: str
    tokens: int  # of the text
    dropped_turns: int = 0  # left out so that it fits
    # With `ApplyTemplate.measures_cache`: its leading tokens in memory or on the disk, and the
    # estimated time to read the others; 0: it is longer than the context.
    cached_tokens: int = 0
    prefill_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of texts, each of length 1 unless there is one for each token."""

    request: int
    # One for each text; with Pooling.NONE those of its tokens in turn. Empty: cancelled.
    vectors: tuple[tuple[float, ...], ...]
    tokens: int  # of all texts
    pooling: Pooling = Pooling.LAST  # that was used
    counts: tuple[int, ...] = ()  # tokens of each text
    cut: int = 0  # texts of which only the beginning was read


@dataclass(frozen=True, slots=True)
class Reranked:
    """The scores of documents, higher for a better answer; their range is the model's."""

    request: int
    scores: tuple[float, ...]  # one for each document; empty: cancelled
    tokens: int  # of all documents, with the query before each


@dataclass(frozen=True, slots=True)
class Scored:
    """The tokens of a text with their log probabilities."""

    request: int
    # From `Score.start` on. The first of the text, which has nothing before it, has 0 and no others in
    # its place; empty: cancelled.
    tokens: tuple[TokenLogprobs, ...]


@dataclass(frozen=True, slots=True)
class LogitsComputed:
    """The logits after tokens of a text."""

    request: int
    rows: tuple[LogitsRow, ...]  # in the order of the positions; empty: cancelled


@dataclass(frozen=True, slots=True)
class SpeedMeasured:
    """The speed of a model: medians over all repetitions. 0 everywhere: cancelled."""

    request: int
    prefill_tokens_per_second: float = 0.0
    decode_tokens_per_second: float = 0.0
    bytes_per_token: int = 0  # of memory that a decode step reads: weights as stored, and KV cache
    bandwidth: float = 0.0  # bytes/s that the memory can be read with
    offloaded_bytes_per_token: int | None = None  # read from the disk; None: all is in memory
    threads: int = 0


@dataclass(frozen=True, slots=True)
class ConstraintChecked:
    """Whether a constraint can be used."""

    request: int
    message: str = ""  # one sentence: what is wrong; "": nothing
    remedy: str = ""
    line: int = 0  # of the fault, from 1; 0: none, or not known
    column: int = 0


@dataclass(frozen=True, slots=True)
class MetricsRead:
    """Metrics of a model since it was loaded; without one only memory and disk."""

    request: int
    model: str = ""
    path: Path | None = None
    first_token_seconds: Histogram = NO_VALUES  # from the request to the first token, of answers
    token_seconds: Histogram = NO_VALUES  # as in Finished, of tokens
    prefill_tokens_per_second: Histogram = NO_VALUES  # of prompts, without their cached part
    decode_tokens_per_second: Histogram = NO_VALUES  # of answers
    answers: tuple[tuple[str, int], ...] = ()  # ended, by the value of FinishReason
    running: int = 0  # answers in progress
    prompt_tokens: int = 0
    reused_tokens: int = 0  # of these, cached before: prefix hits
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0  # of these
    prefill_seconds: float = 0.0  # of all prompts
    decode_seconds: float = 0.0  # of all answers
    waiting: int = 0  # requests whose answers have not begun
    passes: int = 0  # of the model, over the tokens of answers or of texts to embed
    pass_rows: int = 0  # answers and texts in all passes together
    drafts: int = 0  # that passes verified
    longest_context: int = 0  # tokens of the longest text that an answer ended with
    embedded_tokens: int = 0  # of texts that became vectors or scores
    active_page_bytes: int = 0  # KV pages that answers in progress use
    cached_page_bytes: int = 0  # other KV pages in memory, also those that are being written
    saved_page_bytes: int = 0  # KV pages on disk, of all models, with the files that name them
    resident_bytes: int = 0  # memory of the whole process
    device_bytes: int = 0  # of this process, on devices with memory of their own that it uses
    offloaded_layer_bytes: int = 0  # weights read from the disk for passes, see ModelLoaded


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed; the engine keeps running."""

    request: int
    message: str  # one sentence: what is wrong
    remedy: str  # one sentence: what to do
    full: bool = False  # the conversation does not fit, and its policy is to stop
    fault: Fault = OTHER_FAULT  # the same as a code with parameters


Event = (
    LoadProgress
    | ModelLoaded
    | ModelMoved
    | DevicesFound
    | ModelUnloaded
    | PromptProgress
    | Text
    | Thought
    | ToolCallDelta
    | Finished
    | AdaptersSet
    | DraftSet
    | SnapshotLoaded
    | SnapshotSaved
    | TextForgotten
    | TokensCounted
    | Tokenized
    | Detokenized
    | TemplateApplied
    | Embedded
    | Reranked
    | Scored
    | LogitsComputed
    | SpeedMeasured
    | ConstraintChecked
    | MetricsRead
    | Failed
)
