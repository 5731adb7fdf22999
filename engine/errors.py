"""The engine's exception hierarchy; each error carries a message and a remedy.

EngineError
├── ModelFileError        the file is not a model, is damaged, or declares absurd sizes
│   └── UnsupportedModel  a valid file of an architecture, format or tokenizer we do not support
├── AdapterError          not an adapter, a damaged one, or one for another model
├── SnapshotError         a saved session that is damaged, or of another model, stack or version
├── OutOfMemory           the weights or the key/value cache do not fit this machine
├── PromptTooLong         the prompt fills the context, so no token can be generated
├── TemplateError         the chat template is missing, rejects the conversation, or exceeds a limit
├── RequestError          the request is invalid (an option out of range, no model loaded)
└── Cancelled             not a fault: the caller cancelled the request

`str(error)` is one sentence that names the fault; `error.remedy` is one sentence that says what
to do. The user reads both unchanged.
"""

from __future__ import annotations


class EngineError(Exception):
    """A fault the user can act on: `str(error)` names the fault, `remedy` says what to do."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy

    @property
    def sentence(self) -> str:
        """The fault and its remedy on one line."""
        return f"{self} {self.remedy}".strip()


class ModelFileError(EngineError):
    """The file is not a readable model."""


class UnsupportedModel(ModelFileError):
    """A valid file whose architecture, format or tokenizer this engine does not support."""


class AdapterError(EngineError):
    """The file is not an adapter, is damaged, or does not fit the loaded model."""


class SnapshotError(EngineError):
    """A saved session that is damaged or belongs to another model, adapter stack or version."""


class OutOfMemory(EngineError):
    """The model or its KV cache is larger than the free memory."""


class PromptTooLong(EngineError):
    """The prompt fills the whole context."""


class TemplateError(EngineError):
    """The model's chat template is missing, rejects the conversation, or exceeds a limit."""


class RequestError(EngineError):
    """An invalid option or command."""


class Cancelled(Exception):
    """The request was cancelled; raised between tokens, prefill chunks and loaded tensors."""
