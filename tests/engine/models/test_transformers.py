"""Every family against Hugging Face transformers: its recorded float32 logits of tiny random models.

llama.cpp's converter made the files, so they also show how published models are written.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import architecture_files as files
import transformers_files
from chosen_backend import ops
from engine.models import ARCHITECTURES
from sessions import open_session

CASES = {
    name: case
    for name, case in transformers_files.recorded().items()
    if case.skeleton.architecture in ARCHITECTURES
}
LARGEST_ERROR = 1e-4  # of a logit, in standard deviations of its row
PIECES = (1, 30, 34, 3)  # then the rest
BACKENDS = [name for name in ("reference", "cpu") if name in ops.BACKENDS]


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param(name, backend, marks=[pytest.mark.slow] if backend != BACKENDS[-1] else [])
        for name in CASES
        for backend in BACKENDS
    ],
)
def test_logits_are_those_of_transformers(name: str, backend: str, tmp_path: Path) -> None:
    case = CASES[name]
    with ops.only(backend):
        session = open_session(case.write(tmp_path / "m.gguf"), len(case.tokens))
        found = {
            way: files.run(session, case.tokens, pieces)
            for way, pieces in {
                "in one piece": (),
                "in pieces": PIECES,
                "token by token": (1,) * len(case.tokens),
            }.items()
        }
    for way, logits in found.items():
        assert case.error(logits) <= LARGEST_ERROR, way
