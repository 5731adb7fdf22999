"""Processes that end in the middle of a download, by the script that kills many of them."""

from __future__ import annotations

import pytest

from tests.drivers.crash_download import LIMITS, interrupt

SIZE = 12 << 20


@pytest.mark.parametrize("how", ["kill", "quit"])
def test_the_next_start_ends_in_a_whole_file(how: str) -> None:
    outcome = interrupt(how, SIZE, 0.5)
    assert outcome.whole
    assert outcome.dropped == 0, "all that was on the disk was of use"
    assert outcome.again == outcome.sent - outcome.kept


def test_without_a_hash_little_is_fetched_again_after_a_kill() -> None:
    outcome = interrupt("kill", SIZE, 0.75, hashed=False)
    assert outcome.whole
    assert outcome.dropped <= LIMITS.checkpoint_bytes + (1 << 18)


def test_without_a_hash_nothing_is_fetched_again_after_a_quit() -> None:
    outcome = interrupt("quit", SIZE, 0.75, hashed=False)
    assert outcome.whole
    assert outcome.dropped == 0
