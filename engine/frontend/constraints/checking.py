"""Checking a constraint before it is used: with the vocabulary of the loaded model, or of bytes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from engine.errors import RequestError
from engine.frontend.constraints.grammars import Grammars
from engine.frontend.constraints.refusal import RefusedConstraint
from engine.machine.background import BackgroundTask
from engine.messages import Constraint, ConstraintChecked


def fault_of(constraint: Constraint, grammars: Grammars | None = None) -> RequestError | None:
    """Why a constraint cannot be used with the vocabulary of `grammars`; None: it can.

    Without one it is checked for the single bytes, which have no control tokens.
    """
    try:
        (grammars or Grammars()).compile(constraint)
    except RequestError as error:
        return error
    return None


def check(
    constraint: Constraint, request: int, grammars: Grammars | None, checkpoint: Callable[[], None]
) -> Generator[ConstraintChecked | None, None, None]:
    """Check a constraint on a helper thread; yields None until it is done."""
    task = BackgroundTask(partial(fault_of, constraint, grammars), "grammar")
    while not task.finished:
        checkpoint()
        yield None
    error = task.result(checkpoint)
    if error is None:
        yield ConstraintChecked(request)
        return
    place = (error.line, error.column) if isinstance(error, RefusedConstraint) else (0, 0)
    yield ConstraintChecked(request, str(error), error.remedy, *place)
