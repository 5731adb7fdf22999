"""Hostile files: each gives a document or one fault, in time, and touches nothing else."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from app.documents.source import ExtractionError, ExtractionFault
from app.state.document_faults import fault_sentence
from hostile_files import hostile_files
from hostile_packages import Lures
from hostile_trial import MOST_SECONDS, Outcome, trial

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits that the system enforces")
NAMES = [*hostile_files(Lures("http://127.0.0.1:9", Path("/none").absolute()))]
SAMPLED, OF = 9, 13  # one file in so many, whatever files are added
SAMPLE = [name for name in NAMES if zlib.crc32(name.encode()) % OF == SAMPLED]


def complaints(name: str, outcome: Outcome) -> Iterator[str]:
    """What is wrong with what became of a file."""
    if outcome.seconds > MOST_SECONDS:
        yield f"{name}: {outcome.seconds:.1f} s"
    found = outcome.found
    if isinstance(found, ExtractionError):
        sentence, _ = fault_sentence(name, found.fault, found.detail)
        if name not in sentence or "\n" in sentence:
            yield f"{name}: {sentence}"
        if found.fault in (ExtractionFault.CRASHED, ExtractionFault.UNREADABLE):
            yield f"{name}: {outcome.words}"


def check(folder: Path, names: Iterable[str]) -> None:
    with trial(folder) as tried:
        wrong = [each for name in names for each in complaints(name, tried.outcome(name))]
    assert wrong == []


def test_a_sample_of_hostile_files_does_no_harm(tmp_path: Path) -> None:
    assert len(SAMPLE) >= 50
    check(tmp_path, SAMPLE)


@pytest.mark.sweep
@pytest.mark.parametrize("part", [part for part in range(OF) if part != SAMPLED])
def test_no_hostile_file_does_harm(tmp_path: Path, part: int) -> None:
    check(tmp_path, [name for name in NAMES if zlib.crc32(name.encode()) % OF == part])


def test_there_are_hundreds_of_them() -> None:
    assert len(NAMES) >= 500
