"""Errors with which the loop ends a request where no part of the engine made one."""

from __future__ import annotations

import logging

from engine.errors import EngineError, OutOfMemory, RequestError

log = logging.getLogger(__name__)


def overdue() -> RequestError:
    """The error of a request that could not begin before its deadline."""
    return RequestError(
        "The request waited too long to begin.", "Try again when less is to be done."
    )


def moved_error(error: EngineError) -> EngineError:
    """The error of a request during which the device of the model failed."""
    return EngineError(
        f"The GPU failed: {error}", "Try again: the model runs on the processor now."
    )


def unexpected(error: BaseException) -> EngineError:
    """The error for any exception, which is logged unless it is one for the user."""
    if isinstance(error, EngineError):
        return error
    log.error("unexpected fault", exc_info=error)
    return EngineError(
        f"The engine hit an internal error ({type(error).__name__}: {error}).",
        "Try again; if it happens again, see the log for details.",
    )


def out_of_pages() -> OutOfMemory:
    """The error of an answer for which no KV pages become free."""
    return OutOfMemory(
        "The memory for cached conversations is used up.",
        "Choose a shorter context in the model's settings, or load the model again.",
    )
