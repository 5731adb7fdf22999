"""The engine's exception hierarchy; each error carries a message and a remedy.

EngineError
├── ModelFileError        the file is not a model, is damaged, or declares absurd sizes
│   └── UnsupportedModel  a valid file of an architecture, format or tokenizer we do not support
├── AdapterError          not an adapter, or of a kind we do not support
│   ├── DamagedAdapter
│   └── AdapterOfOtherModel
├── SnapshotError         a saved session that is damaged, or of another model, stack or version
├── OutOfMemory           the weights or the key/value cache do not fit this machine
├── PromptTooLong         the prompt fills the context, so no token can be generated
├── TemplateError         the chat template is missing, rejects the conversation, or exceeds a limit
├── RequestError          the request is invalid (an option out of range, no model loaded)
├── Busy                  too many requests have not ended; `retry_after` says when to try again
└── Cancelled             not a fault: the caller cancelled the request

`str(error)` is one sentence that names the fault exactly; `error.remedy` is one sentence that says
what to do. The command line prints both. `error.fault` is the same as a code with parameters, from
which the window makes a shorter sentence in the user's language.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """Kind of a fault; the comments say what `Fault.about` is."""

    OTHER = "other"
    NO_FILE = "no file"
    NOT_A_FILE = "not a file"
    UNREADABLE = "unreadable"  # the reason the system gives
    NOT_A_MODEL = "not a model"  # a FileLook
    # GGUF, but no model: "adapter", "mmproj", "imatrix", "vocabulary"; or a model that cannot chat:
    # "embeddings", "reranker", "no vocabulary" (missing, or of a kind that is not supported).
    OTHER_TYPE = "other type"
    INCOMPLETE = "incomplete"
    DAMAGED = "damaged"
    PART_MISSING = "part missing"  # the name of the first missing file of a split model
    # Its name; not supported. `nearest` is the nearest family that is: "Qwen3 models (qwen3)".
    ARCHITECTURE = "architecture"
    FORMAT = "format"  # its name; not supported
    UNSUPPORTED = "unsupported"  # another variant that is not supported
    MEMORY = "memory"  # the model does not fit; `needed_bytes` is 0 when memory ran out later
    CONTEXT = "context"  # the model fits, but not with so many tokens
    NOT_LOADED = "not loaded"  # no model is, or not the one that was asked for
    CHAT_FULL = "chat full"
    MESSAGE_TOO_LONG = "message too long"
    TEMPLATE = "template"
    ADAPTER = "adapter"  # of a kind that is not supported
    NO_ADAPTER = "no adapter"
    OTHER_MODEL = "other model"  # the adapter was made for another model
    # A picture that is not read: "missing", "damaged", "large" or "other".
    PICTURE = "picture"
    NO_SIGHT = "no sight"  # the model sees no pictures: a BlindReason, or "" without an encoder
    # A saved session that cannot be used:
    SAVED_MODEL = "saved model"  # of another model, its name
    SAVED_ADAPTERS = "saved adapters"  # with another stack
    SAVED_CACHE = "saved cache"  # with another type of cache
    SAVED_COMPUTATION = "saved computation"  # with another context size or on another device
    SAVED_LENGTH = "saved length"  # longer than the context
    SAVED_VERSION = "saved version"  # of another version of the app
    SAVED_DAMAGED = "saved damaged"


class FileLook(StrEnum):
    """What a file that is not GGUF looks like, by its first bytes."""

    EMPTY = "empty"
    ZEROS = "zeros"
    LFS_POINTER = "Git LFS pointer"
    ZIP = "ZIP"
    SAFETENSORS = "safetensors"
    WEB_PAGE = "web page"
    GGML = "GGML"
    JPEG = "JPEG"
    PNG = "PNG"
    PDF = "PDF"
    TEXT = "text"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as a code with parameters."""

    kind: FaultKind = FaultKind.OTHER
    about: str = ""
    needed_bytes: int = 0
    available_bytes: int = 0
    context: int = 0  # tokens wanted
    most_context: int = 0  # tokens that fit
    nearest: str = ""


OTHER_FAULT = Fault()


class EngineError(Exception):
    """A fault the user can act on: `str(error)` names the fault, `remedy` says what to do."""

    kind = FaultKind.OTHER  # of an error that gives no fault

    def __init__(self, message: str, remedy: str = "", fault: Fault | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.fault = fault or Fault(self.kind)

    @property
    def sentence(self) -> str:
        """The fault and its remedy on one line."""
        return f"{self} {self.remedy}".strip()


class ModelFileError(EngineError):
    """The file is not a readable model."""

    kind = FaultKind.DAMAGED


class UnsupportedModel(ModelFileError):
    """A valid file whose architecture, format or tokenizer this engine does not support."""

    kind = FaultKind.UNSUPPORTED


class AdapterError(EngineError):
    """The file is not an adapter, is damaged, or does not fit the loaded model."""

    kind = FaultKind.ADAPTER


class DamagedAdapter(AdapterError):
    """The file is an adapter, but is damaged."""

    kind = FaultKind.DAMAGED


class AdapterOfOtherModel(AdapterError):
    """The adapter was made for another model than the loaded one."""

    kind = FaultKind.OTHER_MODEL


class SnapshotError(EngineError):
    """A saved session that is damaged or belongs to another model, adapter stack or version."""

    kind = FaultKind.SAVED_DAMAGED


class OutOfMemory(EngineError):
    """The model or its KV cache is larger than the free memory."""

    kind = FaultKind.MEMORY


class PromptTooLong(EngineError):
    """The prompt fills the whole context."""

    kind = FaultKind.CHAT_FULL


class TemplateError(EngineError):
    """The model's chat template is missing, rejects the conversation, or exceeds a limit."""

    kind = FaultKind.TEMPLATE


class RequestError(EngineError):
    """An invalid option or command."""


class Busy(EngineError):
    """The engine refuses a request, since too many have not ended."""

    def __init__(self, message: str, remedy: str, retry_after: float) -> None:
        """`retry_after` is an estimate in seconds."""
        super().__init__(message, remedy)
        self.retry_after = retry_after


class Cancelled(Exception):
    """The request was cancelled; raised between tokens, prefill chunks and loaded tensors."""
