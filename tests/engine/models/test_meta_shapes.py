"""Every architecture on torch's `meta` device: shapes follow from shapes, and no value is read.

Tensors there have no values, so an op that reads one on the host, or mixes in a tensor of the host,
raises. A mixture of experts is left out: which expert a token passes is a value.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import every_architecture
from engine.adapters.stack import NO_ADAPTERS
from engine.core.runner import Rows
from engine.messages import CacheType
from engine.state.sequence import Sequence
from kernels.backend.pipeline import PipelineProgram
from kernels.backend.placement import Placement
from kernels.backend.torch_backend import torch_backend
from placed import layers_of, open_placed

pytestmark = pytest.mark.sweep

META = torch_backend("meta")
CONTEXT = 600
DENSE = [one for one in every_architecture.names() if not every_architecture.is_mixture(one)]


@pytest.mark.parametrize("type", [CacheType.F32, CacheType.Q8_0])
@pytest.mark.parametrize("architecture", DENSE)
def test_a_batch_has_its_shapes(architecture: str, type: CacheType, tmp_path: Path) -> None:
    """A prompt that crosses a page and a window, then a step of two sequences."""
    path = tmp_path / "m.gguf"
    every_architecture.write(architecture, path, context=CONTEXT, window=200)
    session = open_placed(path, Placement.on(META, layers_of(path)), type, CONTEXT)
    runner, model = session.runner, session.runner.model
    vocabulary, width = model.head.weight.shape
    sequences = [Sequence(session.pool, CONTEXT) for _ in range(2)]
    lengths = (300, 7)
    prompts = [
        Rows(one, [at % 40 for at in range(length)])
        for one, length in zip(sequences, lengths, strict=True)
    ]
    found = runner.hidden(prompts)
    assert [tuple(one.shape) for one in found] == [(length, width) for length in lengths]
    steps = runner.hidden([Rows(one, [3]) for one in sequences])
    assert [tuple(one.shape) for one in steps] == [(1, width)] * 2
    assert {one.device.type for one in (*found, *steps)} == {"meta"}
    program = runner.recorded(NO_ADAPTERS)
    assert isinstance(program, PipelineProgram)
    ((_, stage),) = program.stages
    logits = stage.logits(torch.cat(steps))
    assert (tuple(logits.shape), logits.device.type) == ((2, vocabulary), "meta")
    assert {page.data.device.type for pages in sequences[0].pages for page in pages if page} == {
        "meta"
    }
