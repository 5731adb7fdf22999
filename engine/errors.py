"""Everything that can go wrong in the engine, each with what to do about it.

EngineError
├── ModelFileError        the file is not a model, is damaged, or asks for absurd amounts
│   └── UnsupportedModel  a sound file of an architecture, format or tokenizer we do not run
├── AdapterError          not an adapter, a damaged one, or one for another model
├── SnapshotError         a saved session that is damaged, or of another model, stack or version
├── OutOfMemory           the weights or the key/value cache do not fit this machine
├── PromptTooLong         the prompt leaves no room for an answer in the context
├── TemplateError         the chat template is missing, refuses the conversation, or runs away
├── RequestError          the request itself makes no sense (an option out of range, no model loaded)
└── Cancelled             not a fault: the caller asked to stop

`str(error)` is one sentence that names what is wrong; `error.remedy` is one sentence that says
what to do. Both are shown to a person as they are, so both are written for one.
"""

from __future__ import annotations


class EngineError(Exception):
    """A fault a person can act on: `str(error)` says what is wrong, `remedy` what to do."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy

    @property
    def sentence(self) -> str:
        """The fault and its remedy on one line."""
        return f"{self} {self.remedy}".strip()


class ModelFileError(EngineError):
    """The file is not a readable model."""


class UnsupportedModel(ModelFileError):
    """A sound file that needs something this engine does not have."""


class AdapterError(EngineError):
    """The file is no adapter, is damaged, or does not fit the model that is loaded."""


class SnapshotError(EngineError):
    """A saved session that cannot be used: damaged, or of another model, stack or version."""


class OutOfMemory(EngineError):
    """The model or its cache is larger than the memory that is free."""


class PromptTooLong(EngineError):
    """The prompt fills the whole context."""


class TemplateError(EngineError):
    """The model's chat template is missing, refuses the conversation, or does not end."""


class RequestError(EngineError):
    """An option or command that cannot be carried out."""


class Cancelled(Exception):
    """The caller asked to stop; raised between tokens, prefill chunks and loaded tensors."""
