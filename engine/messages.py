"""Commands to and events from the engine thread: frozen dataclasses of plain values.

Commands are imperative, events are in the past tense. Fields are `str int float bool Path`, enums,
tuples of these, and the value types below. Every event carries the id of the request it answers;
the sender chooses the id and never reuses one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from engine.errors import OTHER_FAULT, Fault

# Tags around a model's reasoning, which comes at the beginning of its text.
THOUGHT_OPENS, THOUGHT_ENDS = "<think>", "</think>"


class Role(Enum):
    """Author of a turn; the value is the role name in chat templates."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class CacheType(Enum):
    """Storage type of the KV cache; the value is its name on the command line and in snapshots."""

    F32 = "f32"  # exact: as the reference computes
    F16 = "f16"
    Q8_0 = "q8_0"  # 8 bits in blocks of 32 with an f16 scale, of rotated rows


# Its error is far smaller than that of 8-bit activations, at half the size and bandwidth of f16.
DEFAULT_CACHE = CacheType.Q8_0


class DraftKind(Enum):
    """Speculative decoding: what proposes the next tokens, which the model then verifies.

    No answer changes by it: the model would have generated the same tokens alone.
    """

    NONE = "none"
    LOOKUP = "lookup"  # copied from an earlier place of the text: n-gram lookup
    MODEL = "model"  # by a small model of the same family


class ConstraintKind(Enum):
    """How the text that an answer must be is described."""

    JSON_SCHEMA = "JSON schema"  # the schema's text, draft 2020-12
    GBNF = "GBNF grammar"  # as llama.cpp reads it; its first rule is `root`
    LARK = "Lark grammar"  # the variant of the llguidance library; its first rule is `start`
    REGEX = "regular expression"  # of the whole text, in the syntax of Rust's regex crate
    CHOICES = "list of choices"  # a JSON array of strings
    # A JSON array of objects: "name", "schema" of the text between "begin" and "end", two strings.
    TOOLS = "list of tool calls"


class FinishReason(Enum):
    """Why generation ended."""

    END = "end"  # the model generated an end token
    STOP = "stop"  # a stop string was reached
    LENGTH = "length"  # max_tokens were generated
    CONTEXT = "context"  # the context is full
    CANCELLED = "cancelled"


class ContextPolicy(Enum):
    """What happens when a conversation does not fit in the context any more."""

    DROP_OLDEST = "drop oldest"  # leave out the oldest turns, but keep the instructions
    STOP = "stop"  # fail with PromptTooLong


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation, as passed to the chat template."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampler parameters; the defaults suit small chat models. See `engine.inference.sampling`.

    temperature 0 is greedy, ties going to the lowest id. top_k 0, top_p 1, min_p 0, typical_p 1,
    repeat_penalty 1, and 0 for frequency_penalty, presence_penalty, top_n_sigma, dry_multiplier,
    xtc_probability, temperature_range and mirostat each switch that step off. A window is how many
    of the last tokens are compared; -1: all. seed -1 picks a random seed.
    """

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_window: int = 64
    seed: int = -1
    logit_bias: tuple[tuple[int, float], ...] = ()  # added to the logits of tokens; -inf: never
    ignore_end: bool = False  # the end tokens are never drawn
    # DRY: a token that would continue a repetition of n tokens loses
    # multiplier * base^(n - allowed_length), from the allowed length on.
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_window: int = -1
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")  # texts that no repetition spans
    top_n_sigma: float = 0.0  # keep logits within so many standard deviations of the largest
    xtc_probability: float = 0.0  # of leaving out all but the last token above the threshold
    xtc_threshold: float = 0.1
    temperature_range: float = 0.0  # dynamic: temperature +- range, by the entropy
    temperature_exponent: float = 1.0
    mirostat: int = 0  # 1 or 2: a target for the surprisal, instead of the filters and XTC
    mirostat_tau: float = 5.0  # target surprisal in bits
    mirostat_eta: float = 0.1  # learning rate
    banned: tuple[str, ...] = ()  # texts that the answer never contains


@dataclass(frozen=True, slots=True)
class Constraint:
    """What an answer must be: only tokens that can lead to such a text are generated.

    Without a trigger the whole answer is constrained. With triggers, it begins after the first of
    these strings to be generated: the text before is free, and so is the text after a tool call,
    where more may follow; after a document the answer ends.
    """

    kind: ConstraintKind
    text: str
    trigger: tuple[str, ...] = ()
    required: bool = False  # the answer does not end before a trigger


@dataclass(frozen=True, slots=True)
class Logprob:
    """A token that the model might generate, and the natural logarithm of its probability."""

    token: int
    text: str  # U+FFFD for bytes that are no characters alone
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A generated token, its log probability, and the most likely tokens in its place.

    They are the model's own, before sampling parameters and constraints.
    """

    token: int
    text: str
    logprob: float
    top: tuple[Logprob, ...]  # highest first


@dataclass(frozen=True, slots=True)
class AdapterUse:
    """One LoRA adapter of a stack: a GGUF file or a PEFT folder, and its scale."""

    path: Path
    strength: float = 1.0  # -2 to 2; 0 changes nothing


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """Facts about a loaded LoRA adapter."""

    path: Path
    name: str
    sha256: str  # of the file with its tensors
    kind: str  # "GGUF" or "PEFT"
    rank: int  # the largest of its A/B pairs
    targets: int  # number of weight matrices it changes
    size_bytes: int  # in memory
    strength: float


class SlowReason(Enum):
    """Why a part of a model runs slower than this machine allows."""

    NO_KERNEL = "no_kernel"  # the backend in use lacks a kernel: the reference runs
    WRONG_KERNEL = "wrong_kernel"  # the kernel failed its check at load: the reference runs
    WRONG_PROGRAM = "wrong_program"  # the recorded program failed its check at load
    DECODED = "decoded"  # without a kernel, and too large in float32: decoded for every product


@dataclass(frozen=True, slots=True)
class SlowPart:
    """A part of a model without its fast path, and why."""

    reason: SlowReason
    part: str  # an op, or an op and a format: "linear Q4_0"


# --- commands -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model file, replacing the loaded model."""

    request: int
    path: Path
    context: int = 0  # tokens; 0: as trained, lowered until the KV cache fits in memory
    threads: int = 0  # 0: physical cores
    cache: CacheType = DEFAULT_CACHE
    tokenizer: Path | None = None  # a tokenizer.json that replaces the file's vocabulary
    backend: str = ""  # "cpu", "reference", "torch", "torch:cuda"; "": the preferred one
    # Backends of consecutive layers and how many each has, the last 0: the rest. Empty: `backend`.
    placement: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class UnloadModel:
    """Unload the model and return its memory to the system."""

    request: int


@dataclass(frozen=True, slots=True)
class Generate:
    """Generate the answer to a conversation, formatted by the model's chat template.

    When the last turn is the assistant's, its text is continued instead of answered. The prefix
    that the prompt shares with any cached text is not computed again. Several commands are carried
    out at the same time.
    """

    request: int
    turns: tuple[Turn, ...]
    sampling: Sampling = Sampling()
    max_tokens: int = 0  # 0: until an end token or a full context
    stop: tuple[str, ...] = ()
    thinking: bool | None = None  # None: the template's default
    policy: ContextPolicy = ContextPolicy.STOP
    conversation: str = ""  # id, as in SaveSnapshot
    adapters: tuple[AdapterUse, ...] | None = None  # None: those of the last SetAdapters
    answers: int = 1  # to the one prompt, each with its own events
    background: bool = False  # yields to requests that are not
    drafts: DraftKind = DraftKind.NONE
    constraint: Constraint | None = None
    logprobs: int = 0  # of so many most likely tokens, in the Text events; 0: none
    # Of all snapshots together, as in SaveSnapshot: what memory does not hold of this conversation
    # is written there. 0: nothing is written any more; None: as the last command said.
    budget_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SetAdapters:
    """Replace the adapter stack, the first applied first; an empty one clears it.

    It applies to the answers requested after it. Loaded adapter files are not read again. Texts
    processed with other adapters stay cached. A newly loaded model has no adapters.
    """

    request: int
    adapters: tuple[AdapterUse, ...]


@dataclass(frozen=True, slots=True)
class SetDraft:
    """Load a draft model beside the loaded model, in place of another; None: unload it.

    Answers with `DraftKind.MODEL` use it. A newly loaded model has none.
    """

    request: int
    path: Path | None


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Restore the saved KV cache that shares the longest prefix with a conversation."""

    request: int
    turns: tuple[Turn, ...]
    conversation: str  # the id given to SaveSnapshot
    policy: ContextPolicy = ContextPolicy.STOP
    adapters: tuple[AdapterUse, ...] | None = None  # None: those of the last SetAdapters


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Write the session's KV cache to a file in the background, unless it is saved already."""

    request: int
    conversation: str  # id of the conversation it belongs to
    budget_bytes: int  # of all snapshots together; the least recently used are evicted
    answer: int = 0  # request of the answer whose context is saved; 0: the conversation's last one


@dataclass(frozen=True, slots=True)
class CountTokens:
    """Count the tokens of a text that is being written."""

    request: int
    text: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the request with this id; overtakes every queued command."""

    request: int


Command = (
    LoadModel
    | UnloadModel
    | Generate
    | SetAdapters
    | SetDraft
    | LoadSnapshot
    | SaveSnapshot
    | CountTokens
    | Cancel
)


# --- events -------------------------------------------------------------------------------------


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
    vocabulary: str = ""  # origin of the vocabulary; "": the file's metadata
    format: str = ""  # as users know it: "Q4_1", "Q4_K_M"
    base: bool = False  # continues text; it was not trained to chat
    has_thinking_switch: bool = False  # `Generate.thinking` has an effect
    sampling: Sampling | None = None  # that the file recommends


@dataclass(frozen=True, slots=True)
class ModelUnloaded:
    """No model is loaded any more."""

    request: int
    freed_bytes: int = 0  # measured decrease of the process's memory
    resident_bytes: int = 0  # memory of the whole process, measured now


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
class Finished:
    """The answer is complete, or was stopped."""

    request: int
    reason: FinishReason
    prompt_tokens: int
    reused_tokens: int
    generated_tokens: int
    prefill_seconds: float
    decode_seconds: float
    context_used: int  # tokens
    seed: int = -1  # that gives this answer again; -1: none was drawn
    answer: int = 0  # of several answers to one prompt
    last: bool = True  # the request is over; False: other answers to the prompt go on
    drafted_tokens: int = 0  # verified
    accepted_tokens: int = 0  # of these
    draft_gain: float = 0.0  # estimated speed relative to an answer without drafts; 0: no drafts
    incomplete: bool = False  # it ended before it was what its constraint asks for
    forced_tokens: int = 0  # that the constraint left no choice about: read without being drawn


@dataclass(frozen=True, slots=True)
class DraftSet:
    """The draft model in use."""

    request: int
    path: Path | None  # None: there is none
    name: str = ""
    memory_bytes: int = 0  # with a full context


@dataclass(frozen=True, slots=True)
class AdaptersSet:
    """The adapter stack in effect; `adapters` are in the order of the command."""

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


@dataclass(frozen=True, slots=True)
class SnapshotSaved:
    """The session is on disk; later commands may finish before this event."""

    request: int
    tokens: int  # 0: there was nothing new to save
    size_bytes: int  # written; what was on the disk before is not written again
    seconds: float
    evicted: int  # number of older snapshots deleted to meet the budget


@dataclass(frozen=True, slots=True)
class TokensCounted:
    """The number of tokens of a text, without the markup of a message."""

    request: int
    tokens: int


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
    | ModelUnloaded
    | PromptProgress
    | Text
    | Finished
    | AdaptersSet
    | DraftSet
    | SnapshotLoaded
    | SnapshotSaved
    | TokensCounted
    | Failed
)
