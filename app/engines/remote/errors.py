"""The error of a connection or its server, with the fault that the window explains."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from app.domain.deltas import AnswerFailed
from app.domain.parts import ErrorPart
from app.domain.remote_fault import RemoteFault, RemoteFaultKind


class RemoteError(AnswerFailed):
    """A request failed: `fault` says why; `str(error)` is a technical text without secrets."""

    def __init__(self, kind: RemoteFaultKind, **facts: Any) -> None:
        """`facts` are fields of `RemoteFault`."""
        self.fault = RemoteFault(kind, **facts)
        status = str(self.fault.status or "")
        texts = (self.fault.server, self.fault.kind.value, status, self.fault.about)
        message = ": ".join(filter(None, texts))
        super().__init__(ErrorPart(self.fault, self.fault.model, message))

    @classmethod
    def of(cls, fault: RemoteFault) -> RemoteError:
        """The error of a fault."""
        return cls(**{field.name: getattr(fault, field.name) for field in fields(fault)})
