"""Extracts the hostile files, or those whose names contain a word, and prints what became of each.

PYTHONPATH=.:tests/support python tests/drivers/try_hostile_files.py [word ...]
"""

from __future__ import annotations

import collections
import sys
import tempfile
from pathlib import Path

from app.documents.source import ExtractionError, ExtractionFault
from hostile_trial import trial

SLOW_SECONDS = 3.0


def main(words: list[str]) -> None:
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder, trial(Path(folder)) as made:
        for name in made.files:
            if words and not any(word in name for word in words):
                continue
            outcome = made.outcome(name)
            fault = outcome.found.fault if isinstance(outcome.found, ExtractionError) else None
            counts[fault or "document"] += 1
            crashed, slow = fault is ExtractionFault.CRASHED, outcome.seconds > SLOW_SECONDS
            mark = "!!" if crashed else " *" if slow else "  "
            print(f"{mark} {outcome.seconds:6.2f} s  {name:28} {outcome.words[:150]}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main(sys.argv[1:])
