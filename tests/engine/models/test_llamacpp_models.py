"""Every architecture against llama.cpp: its recorded logits of small random models, in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import architecture_files as files
from chosen_backend import ops
from engine.cli.commands import main
from engine.errors import UnsupportedModel
from engine.models import ARCHITECTURES
from sessions import open_session

pytestmark = pytest.mark.sweep

MODELS = {
    name: skeleton
    for name, skeleton in files.recorded().items()
    if skeleton.architecture in ARCHITECTURES
}
REFUSED: dict[str, str] = {}  # variants of a family that are not supported
RUNNING = [name for name in MODELS if name not in REFUSED]
OP_BY_OP = {"llama4"}  # attention in chunks
# llama.cpp looks GELU up in a table of float16, which alone makes 4e-7.
LARGEST_NMSE = 1e-6
WAYS = {
    "in one piece": (),
    "in pieces": files.PIECES,
    "token by token": (1,) * files.TOKENS,
    "in chunks that grow": (2, 5, 11, 23, 47, 95),
}


def backends() -> list[str]:
    """The reference, and the native kernels where they are built."""
    return [name for name in ("reference", "cpu") if name in ops.BACKENDS]


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param(name, backend, marks=[pytest.mark.slow] if backend != backends()[-1] else [])
        for name in RUNNING
        for backend in backends()
    ],
)
def test_logits_are_llamacpps(name: str, backend: str, tmp_path: Path) -> None:
    skeleton, (rows, _) = MODELS[name], files.recorded_rows(name)
    tokens, positions = skeleton.tokens, np.array(skeleton.positions)
    path = files.write(skeleton.without_scales(), tmp_path / "m.gguf")
    with ops.only(backend):
        session = open_session(path, len(tokens))
        is_one_program = backend == "cpu" and skeleton.architecture not in OP_BY_OP
        assert session.runner.is_recorded == is_one_program
        found = {
            f"{length} tokens": files.run(session, tokens[:length])
            for length in files.LENGTHS
            if length < len(tokens)
        }
        found |= {way: files.run(session, tokens, pieces) for way, pieces in WAYS.items()}
    for way, logits in found.items():
        inside = positions[positions < len(logits)]
        expected = rows[: len(inside)]
        assert files.nmse(logits[inside], expected) <= LARGEST_NMSE, way
        assert np.array_equal(logits[inside].argmax(1), expected.argmax(1)), way


@pytest.mark.parametrize("name", RUNNING)
def test_scales_of_weights_are_applied(name: str, tmp_path: Path) -> None:
    skeleton, (_, expected) = MODELS[name], files.recorded_rows(name)
    session = open_session(files.write(skeleton, tmp_path / "m.gguf"), skeleton.length)
    found = files.run(session, skeleton.tokens)[skeleton.few_positions]
    assert files.nmse(found, expected) <= LARGEST_NMSE
    assert np.array_equal(found.argmax(1), expected.argmax(1))


@pytest.mark.parametrize("name", [name for name in REFUSED if name in MODELS])
def test_a_variant_that_does_not_run_is_refused(name: str, tmp_path: Path) -> None:
    path = files.write(MODELS[name].without_scales(), tmp_path / "m.gguf")
    with pytest.raises(UnsupportedModel, match=REFUSED[name]):
        open_session(path)


def test_a_model_that_also_scores_documents_gives_logits_and_no_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skeleton = MODELS["qwen3-dense"].without_scales()
    assert skeleton.tensors["cls.output.weight"] == (256,)  # one row, saved as a vector
    path = str(files.write(skeleton, tmp_path / "m.gguf"))
    assert main(["logits", "-m", path, "--tokens", "1,2,3"]) == 0
    capsys.readouterr()
    assert main(["complete", "-m", path, "-p", "hello"]) == 1
    assert "only scores how well documents" in capsys.readouterr().err


def test_the_weights_are_the_same_on_every_machine() -> None:
    row = files.weights("blk.0.attn_q.weight", (3,))
    assert [value.hex() for value in row.tolist()] == [
        "0x1.0a27220000000p-4",
        "-0x1.d6bb200000000p-6",
        "-0x1.c547ca0000000p-4",
    ]
    assert (files.weights("blk.0.ssm_a", (99, 1)) < 0).all()
    assert abs(files.weights("output_norm.weight", (4_096,)).mean() - 1) < 0.01
    assert abs(files.weights("output.weight", (64, 64)).std() - files.SPREAD) < 0.005
