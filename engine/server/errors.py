"""Errors of the server's APIs: an HTTP status, one sentence, and the body each family expects."""

from __future__ import annotations

from enum import Enum
from typing import Any

from engine.errors import Busy, EngineError, Fault, FaultKind

TOO_LONG = "context_length_exceeded"  # code of a prompt that does not fit; with both sizes


class Family(Enum):
    """Family of APIs, which decides the shape of error bodies."""

    OPENAI = "openai"
    LLAMA = "llama"  # OpenAI's shape, with llama.cpp's words for a prompt that does not fit
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"


class ApiError(Exception):
    """A request that cannot be answered: `str(error)` is one sentence for the client."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_seconds: float = 0.0,
        details: dict[str, Any] | None = None,
    ) -> None:
        """`code` is OpenAI's short name of the fault, `param` the field of the body that is wrong.

        `retry_seconds` becomes the header Retry-After; `details` are more fields of OpenAI's body.
        """
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_seconds = retry_seconds
        self.details = details or {}

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        found = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        if self.retry_seconds > 0:
            found["Retry-After"] = str(max(1, round(self.retry_seconds)))
        return found

    def body(self, family: Family) -> dict[str, Any]:
        """The JSON object of the response, or of an event in a stream."""
        if family is Family.OLLAMA:
            return {"error": str(self)}
        if family is Family.ANTHROPIC:
            kind = _ANTHROPIC.get(
                self.status, "invalid_request_error" if self.is_fault else "api_error"
            )
            message = str(self)
            if self.code == TOO_LONG:  # agents look for these words, and make the prompt shorter
                sizes = (
                    f"{self.details['n_prompt_tokens']} tokens > {self.details['n_ctx']} maximum"
                )
                message = f"prompt is too long: {sizes}"
            error = {"type": kind, "message": message}
            return {"type": "error", "error": error, "request_id": None}
        kind = _OPENAI.get(
            self.status, "invalid_request_error" if self.is_fault else "server_error"
        )
        message = str(self)
        if family is Family.LLAMA and self.code == TOO_LONG:
            kind = "exceed_context_size_error"
            message += " It exceeds the available context size."
        error = {"message": message, "type": kind, "code": self.code, "param": self.param}
        return {"error": error | self.details}

    @property
    def is_fault(self) -> bool:
        """Whether the client must change its request."""
        return self.status < 500


_OPENAI = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}
# Faults of the server's machine or files, which no other request avoids.
_OURS = {
    FaultKind.NO_FILE,
    FaultKind.NOT_A_FILE,
    FaultKind.UNREADABLE,
    FaultKind.NOT_A_MODEL,
    FaultKind.INCOMPLETE,
    FaultKind.DAMAGED,
    FaultKind.PART_MISSING,
    FaultKind.ARCHITECTURE,
    FaultKind.FORMAT,
    FaultKind.UNSUPPORTED,
}
_BUSY_SECONDS = 2.0  # before another try, when memory is short


def bad_field(name: str, problem: str) -> ApiError:
    """A field of the body that is wrong: "`temperature` must be a number, not text."."""
    return ApiError(400, f"`{name}` {problem}", param=name, code="invalid_value")


def from_engine(error: EngineError) -> ApiError:
    """An error of the engine as the response to the request that met it."""
    if isinstance(error, Busy):
        return ApiError(503, error.sentence, code="busy", retry_seconds=error.retry_after)
    return from_fault(error.sentence, error.fault)


def from_fault(sentence: str, fault: Fault) -> ApiError:
    """A fault that the engine reports in one sentence as the response to the request."""
    if fault.kind in (FaultKind.CHAT_FULL, FaultKind.MESSAGE_TOO_LONG):
        sizes = {"n_prompt_tokens": fault.context, "n_ctx": fault.most_context}
        message = f"The prompt has {fault.context:,} tokens, and the model's context {fault.most_context:,}."
        return ApiError(400, message, code=TOO_LONG, details=sizes)
    if fault.kind is FaultKind.MEMORY:
        return ApiError(503, sentence, code="out_of_memory", retry_seconds=_BUSY_SECONDS)
    if fault.kind in _OURS:
        return ApiError(500, sentence, code="model_unusable")
    return ApiError(400, sentence, code="invalid_value")
