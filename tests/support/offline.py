"""The gate of connections in tests: off and empty before and after each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.net.ledger import Ledger
from app.net.offline import Gate, gate


@contextmanager
def clean_gate() -> Iterator[Gate]:
    """The gate of this process, with a record of its own; online again at the end."""
    before, gate.ledger = gate.ledger, Ledger()
    try:
        yield gate
    finally:
        gate.set_offline(False)
        gate.ledger = before
