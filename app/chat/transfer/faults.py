"""Why a file cannot be imported or written: one sentence, and what to do."""

from __future__ import annotations


class TransferError(Exception):
    """`str(error)` is the reason, `remedy` the advice."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


class Cancelled(Exception):
    """The user cancelled; raised by the callback that reports the progress."""
