"""Commands and events that cross the boundary between window and engine: plain values only.

Commands are imperative, events say what happened. Each is a frozen dataclass of its own, built of
`str int float bool Path`, enums, tuples of these, and the value types below. Every event names
the request it answers; the sender chooses the request number, and never uses one twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

# What a model thinks before it answers stands between these, at the beginning of its text.
THOUGHT_OPENS, THOUGHT_ENDS = "<think>", "</think>"


class Role(Enum):
    """Who wrote a turn; the value is the word chat templates use."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class CacheType(Enum):
    """How keys and values are held; the value is the name a command line and a snapshot use."""

    F32 = "f32"  # exact: what the reference computes
    F16 = "f16"
    Q8_0 = "q8_0"  # 8 bits in blocks of 32 with an f16 scale, of rotated rows


# It moves answers far less than 8-bit activations do, and is half of what halves take and read.
DEFAULT_CACHE = CacheType.Q8_0


class FinishReason(Enum):
    """Why generation ended."""

    END = "end"  # the model said it was done
    STOP = "stop"  # a stop string was reached
    LENGTH = "length"  # max_tokens were generated
    CONTEXT = "context"  # the context is full
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation as the template sees it."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn; the defaults suit small chat models.

    temperature 0 is greedy, ties going to the lowest id. top_k 0, top_p 1, min_p 0, typical_p 1,
    repeat_penalty 1, frequency_penalty 0 and presence_penalty 0 each switch that step off.
    seed -1 draws a fresh one. penalty_window counts the last tokens the penalties look at.
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


@dataclass(frozen=True, slots=True)
class AdapterUse:
    """One adapter of a stack: a GGUF file or a PEFT folder, and how strongly it is applied."""

    path: Path
    strength: float = 1.0  # -2 to 2; 0 changes nothing


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """An adapter that is loaded."""

    path: Path
    name: str
    sha256: str  # of its tensors' file
    kind: str  # "GGUF" or "PEFT"
    rank: int  # the largest of its pairs
    targets: int  # matrices it changes
    size_bytes: int  # held in memory
    strength: float


class SlowReason(Enum):
    """Why a part of a model is slower than this machine could run it."""

    EXPERTS = "experts"  # which experts a token passes is not known when a program is recorded
    HEAD_NORMS = "head_norms"  # heads normed by weights of their own have no instruction
    ADAPTED_EMBEDDING = "adapted_embedding"  # nor has an embedding that an adapter changes
    NO_KERNEL = "no_kernel"  # the backend in use lacks a kernel: the reference runs
    WRONG_KERNEL = "wrong_kernel"  # the check at load found it wrong here: the reference runs
    WRONG_PROGRAM = "wrong_program"  # the check found the recorded program wrong here


@dataclass(frozen=True, slots=True)
class SlowPart:
    """A part of a model that does not run as fast as it could; the rest then runs op by op."""

    reason: SlowReason
    part: str  # "experts", "token_embd.weight", or an op and a format: "linear Q4_0"


# --- commands -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model file, replacing the one that is loaded."""

    request: int
    path: Path
    context: int = 0  # tokens; 0: the model's own, lowered until the cache fits in memory
    threads: int = 0  # 0: physical cores
    cache: CacheType = DEFAULT_CACHE
    tokenizer: Path | None = None  # a tokenizer.json instead of the file's own vocabulary


@dataclass(frozen=True, slots=True)
class UnloadModel:
    """Drop the loaded model and give its memory back."""

    request: int


@dataclass(frozen=True, slots=True)
class Generate:
    """Answer a conversation through the model's own chat template.

    When the last turn is the assistant's, its text is continued instead of answered. What the
    conversation shares with the one before it is not computed again.
    """

    request: int
    turns: tuple[Turn, ...]
    sampling: Sampling = Sampling()
    max_tokens: int = 0  # 0: until the model ends or the context is full
    stop: tuple[str, ...] = ()
    thinking: bool | None = None  # None: as the model's template has it


@dataclass(frozen=True, slots=True)
class SetAdapters:
    """Make this the stack of adapters, the first applied first; an empty one clears it.

    Files that are loaded already are not read again. What was read of a conversation is forgotten
    exactly when the stack has another effect than before. A new model begins without adapters.
    """

    request: int
    adapters: tuple[AdapterUse, ...]


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Bring the session as near to a conversation as what was saved of it, or of a branch, allows."""

    request: int
    turns: tuple[Turn, ...]
    conversation: str  # the sender's name for it, as it was saved


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Write what the session holds to a file, beside other work; nothing is written twice."""

    request: int
    conversation: str  # whose it is
    budget_bytes: int  # of all snapshots together; the least recently used go first


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop the request with this number; overtakes every other command."""

    request: int


Command = LoadModel | UnloadModel | Generate | SetAdapters | LoadSnapshot | SaveSnapshot | Cancel


# --- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a load has come."""

    request: int
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """The model answers from now on."""

    request: int
    path: Path
    name: str
    architecture: str
    layout: str  # in words: "4-bit, groups of 32"
    parameters: int
    context: int  # tokens
    file_bytes: int
    memory_bytes: int  # weights and cache as held now
    kernels: str  # which kernels run, for the status line: "reference"
    slow: tuple[SlowPart, ...]  # empty: all of it runs as fast as these kernels can
    seconds: float
    resident_bytes: int = 0  # memory of the whole process, measured now
    cache: CacheType = DEFAULT_CACHE
    template: str = ""  # a built-in one that stands in for the file's; "": the file has its own
    vocabulary: str = ""  # where its words come from; "": the file's own keys


@dataclass(frozen=True, slots=True)
class ModelUnloaded:
    """No model is loaded any more."""

    request: int
    freed_bytes: int = 0  # measured: what the process gave back
    resident_bytes: int = 0  # memory of the whole process, measured now


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """How much of the prompt has been read."""

    request: int
    done_tokens: int
    total_tokens: int
    reused_tokens: int  # of done_tokens, those the cache already held


@dataclass(frozen=True, slots=True)
class Text:
    """The answer has come further, by a token or by text held back; never splits a character."""

    request: int
    text: str  # empty where a token shows nothing, or nothing yet
    generated_tokens: int  # so far
    context_used: int  # tokens


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


@dataclass(frozen=True, slots=True)
class AdaptersSet:
    """The stack is as asked; `adapters` are those of the command, strengths included."""

    request: int
    adapters: tuple[AdapterInfo, ...]
    changed: bool  # whether answers differ from now on
    discarded_tokens: int  # of the session, that must be read again
    slow: tuple[SlowPart, ...] = ()  # what the adapters slow down, besides the model's own


@dataclass(frozen=True, slots=True)
class SnapshotLoaded:
    """What of the conversation need not be read again, whatever it comes from."""

    request: int
    restored_tokens: int  # read from a file now; 0: there was none, or the session held more
    ready_tokens: int  # of the conversation, that the session holds
    total_tokens: int  # of the conversation
    seconds: float  # that restoring took
    remaining_prefill_seconds: float  # estimate for the tokens not cached; 0: too few
    refused: str  # one sentence: why what was saved could not be used; empty: nothing was refused


@dataclass(frozen=True, slots=True)
class SnapshotSaved:
    """The session is on the disk. Comes when writing is done, other commands may end before it."""

    request: int
    tokens: int  # 0: there was nothing new to save
    size_bytes: int
    seconds: float
    evicted: int  # older snapshots that made room


@dataclass(frozen=True, slots=True)
class Failed:
    """The request could not be carried out; the engine goes on."""

    request: int
    message: str  # one sentence: what is wrong
    remedy: str  # one sentence: what to do


Event = (
    LoadProgress
    | ModelLoaded
    | ModelUnloaded
    | PromptProgress
    | Text
    | Finished
    | AdaptersSet
    | SnapshotLoaded
    | SnapshotSaved
    | Failed
)
