"""Downloads in processes that are killed, with the crash driver."""

from __future__ import annotations

import pytest

from tests.drivers.crash_download import LIMITS, interrupt

SIZE = 12 << 20


@pytest.mark.parametrize("how", ["kill", "quit"])
def test_restart_after_a_crash_completes_the_file(how: str) -> None:
    outcome = interrupt(how, SIZE, 0.5)
    assert outcome.whole
    assert outcome.dropped == 0, "all that was on the disk was of use"
    assert outcome.again == outcome.sent - outcome.kept


def test_kill_without_a_hash_repeats_at_most_one_checkpoint() -> None:
    outcome = interrupt("kill", SIZE, 0.75, hashed=False)
    assert outcome.whole
    assert outcome.dropped <= LIMITS.checkpoint_bytes + (1 << 18)


def test_quit_without_a_hash_repeats_nothing() -> None:
    outcome = interrupt("quit", SIZE, 0.75, hashed=False)
    assert outcome.whole
    assert outcome.dropped == 0
