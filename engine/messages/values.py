"""Values in requests and events: turns, sampling, constraints, adapters, log probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path

# Tags around a model's reasoning, which comes at the beginning of its text.
THOUGHT_OPENS, THOUGHT_ENDS = "<think>", "</think>"


class Role(Enum):
    """Author of a turn; the value is the role name in chat templates."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"  # results of tool calls


class Priority(IntEnum):
    """Which requests the engine serves first."""

    WINDOW = 0  # of the person in front of this machine
    NORMAL = 1
    BACKGROUND = 2  # when nothing else is to be done


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

    # The schema's text, draft 2020-12. Where it declares properties and says nothing of others, none
    # of these are written.
    JSON_SCHEMA = "JSON schema"
    GBNF = "GBNF grammar"  # as llama.cpp reads it; its first rule is `root`
    LARK = "Lark grammar"  # the variant of the llguidance library; its first rule is `start`
    # Of the whole text, in the syntax of Rust's regex crate; \d and \w are ASCII, as in ECMA 262.
    REGEX = "regular expression"
    CHOICES = "list of choices"  # a JSON array of strings
    # A JSON object of rules and schemas, which `engine.frontend.tool_formats.grammar` makes.
    TOOLS = "list of tool calls"


class Pooling(Enum):
    """How the hidden states of a text become one vector."""

    MEAN = "mean"  # of all tokens
    CLS = "cls"  # the first token's
    LAST = "last"  # the last token's
    NONE = "none"  # a vector for each token, of any length


class FinishReason(Enum):
    """Why generation ended."""

    END = "end"  # the model generated an end token
    STOP = "stop"  # a stop string was reached
    LENGTH = "length"  # max_tokens were generated
    CONTEXT = "context"  # the context is full
    TOOL_CALLS = "tool calls"  # the model waits for the results of its calls
    REPETITION = "repetition"  # the text repeated itself: see `engine.frontend.repetition`
    CANCELLED = "cancelled"


class ContextPolicy(Enum):
    """What happens when a conversation does not fit in the context any more."""

    DROP_OLDEST = "drop oldest"  # leave out the oldest turns, but keep the instructions
    STOP = "stop"  # fail with PromptTooLong


@dataclass(frozen=True, slots=True)
class Infill:
    """A gap in a text, which models of code fill: the answer is what stands in it.

    What does not fit in the context is left out: of `files` the first, then the text that is farthest
    from the gap.
    """

    prefix: str  # before the gap
    suffix: str  # behind it
    begun: str = ""  # of the answer
    files: tuple[tuple[str, str], ...] = ()  # others of the project: their names and texts


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of a turn."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """Thoughts of an answer, without markers."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the model."""

    id: str  # that its result names
    name: str
    arguments: str  # a JSON object


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a called tool gave back."""

    call_id: str
    name: str  # of the tool; "": that of the call
    text: str


class Detail(Enum):
    """How finely a model sees a picture: more detail is more tokens."""

    LOW = "low"
    STANDARD = "standard"  # as the model's makers do
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class ImagePart:
    """A picture in a turn, which only models with a picture encoder take."""

    source: Path | bytes = field(repr=False)  # an image file, or its content
    detail: Detail | int = Detail.STANDARD  # a number: the most tokens that it may become
    description: str = ""  # in words, for those who cannot see it


Part = TextPart | ReasoningPart | ToolCall | ToolResult | ImagePart


class BlindReason(Enum):
    """Why a model does not see although there is a picture encoder."""

    ENCODER = "encoder"  # it does not fit the model
    DAMAGED = "damaged"  # its file cannot be read
    MEMORY = "memory"  # it has no room


@dataclass(frozen=True, slots=True)
class Blindness:
    """That a model does not see although there is a picture encoder, and why."""

    reason: BlindReason
    sentence: str  # without a capital letter at its beginning: "it runs on ..."


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation, as passed to the chat template: a text, or parts in order."""

    role: Role
    content: str | tuple[Part, ...]

    @property
    def text(self) -> str:
        """Its texts and results joined, thoughts between the usual tags; no calls, no pictures."""
        if isinstance(self.content, str):
            return self.content
        return "".join(_part_text(part) for part in self.content)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in it."""
        parts = () if isinstance(self.content, str) else self.content
        return tuple(part for part in parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results of tool calls in it."""
        parts = () if isinstance(self.content, str) else self.content
        return tuple(part for part in parts if isinstance(part, ToolResult))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The pictures in it."""
        parts = () if isinstance(self.content, str) else self.content
        return tuple(part for part in parts if isinstance(part, ImagePart))


def _part_text(part: Part) -> str:
    match part:
        case TextPart(text) | ToolResult(text=text):
            return text
        case ReasoningPart(text):
            return f"{THOUGHT_OPENS}\n{text}\n{THOUGHT_ENDS}\n\n"
        case ToolCall() | ImagePart():
            return ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call."""

    name: str
    description: str = ""
    schema: str = '{"type": "object", "properties": {}}'  # of its arguments: a JSON schema


class ToolChoice(Enum):
    """Whether the model calls a tool. In place of one: the name of a tool that it calls."""

    AUTO = "auto"  # as it likes
    NONE = "none"  # it is told of the tools and calls none
    REQUIRED = "required"  # one at least


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampler parameters; the defaults suit small chat models. See `engine.sampling`.

    temperature 0 is greedy, ties going to the lowest id. top_k 0 or -1, top_p 1, min_p 0,
    typical_p 1, repeat_penalty 1, and 0 for frequency_penalty, presence_penalty, top_n_sigma,
    dry_multiplier, xtc_probability, temperature_range and mirostat each switch that step off. A
    window is how many of the last tokens are compared; -1: all. seed -1 picks a random seed.
    """

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_window: int = 256  # longer than a paragraph: tests/benchmarks/loops.md
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
    raw: str = ""  # its bytes, each as the character of that number; "": those of `text`


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A generated token, its log probability, and the most likely tokens in its place.

    They are the model's own, before sampling parameters and constraints, unless a request wants those
    after them: then there are only tokens that may have been drawn.
    """

    token: int
    text: str
    logprob: float
    top: tuple[Logprob, ...]  # highest first
    raw: str = ""  # as in Logprob


@dataclass(frozen=True, slots=True)
class LogitsRow:
    """The logits in one place, highest first; of equal ones the lowest id."""

    ids: tuple[int, ...]
    logits: tuple[float, ...]
    pieces: tuple[str, ...] = ()  # of the tokens, if they were asked for, as in Logprob


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counted values: `counts[i]` of them are at most `bounds[i]` and above the bound before."""

    bounds: tuple[float, ...]  # ascending
    counts: tuple[int, ...]  # one more than bounds: the last is of the values above all
    sum: float  # of the values
    p50: float = 0.0  # the median, within a sixteenth; 0 without values
    p95: float = 0.0


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
    NOT_LOWERED = "not_lowered"  # the backend in use runs the model op by op
    DECODED = "decoded"  # without a kernel, and too large in float32: decoded for every product
    OFFLOADED = "offloaded"  # not in memory: read from the file for every pass


@dataclass(frozen=True, slots=True)
class SlowPart:
    """A part of a model without its fast path, and why."""

    reason: SlowReason
    part: str  # an op, an op and a format, or what is not lowered: "Attend with sinks"


class DeviceFault(Enum):
    """Why a device cannot run a model."""

    NO_SUPPORT = "no support"  # this build of torch cannot use such devices
    NO_DEVICE = "no device"  # there is none, or no driver for it
    TOO_OLD = "too old"
    NO_TRITON = "no triton"  # the package that compiles the kernels is not installed
    NO_COMPILER = "no compiler"  # a C compiler, which that package needs
    DRIVER_FAILS = "driver fails"
    COMPUTES_WRONGLY = "computes wrongly"  # a kernel failed its check at load
    OUT_OF_MEMORY = "out of memory"
    TOO_LARGE = "too large"  # the model, for what is free of its memory: part of it may run there


@dataclass(frozen=True, slots=True)
class DeviceRefusal:
    """Why a device cannot run a model, as a code and as one English sentence."""

    fault: DeviceFault
    text: str


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device of this computer beside the processor."""

    name: str  # as in `Load.device`: "cuda", "cuda:1"
    label: str  # the name of the hardware; "" if it is not known
    total_bytes: int = 0
    free_bytes: int = 0
    refusal: DeviceRefusal | None = None  # None: it can run models


@dataclass(frozen=True, slots=True)
class DevicePart:
    """Consecutive layers of a model on one device."""

    name: str  # "cpu", or of a `DeviceInfo`
    label: str
    layers: int
    memory_bytes: int  # of the whole model on this device
