"""Picture encoders against transformers itself, with other weights, sizes and variants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import vision_files
from engine.gguf.reader import GGUFFile
from engine.vision.encoders import build_encoder
from kernels.backends import BACKENDS
from vision_files import CASES, Case

pytest.importorskip("transformers", reason="its models are the oracle")

import oracle_vision

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
# Normalised and squared; 6e-10 measured where scores of attention are large, 4e-12 elsewhere.
LARGEST_ERROR = 1e-7
# Rows and columns of merged squares: one, odd numbers, lines, and as many as stay quick.
GRIDS = ((1, 1), (1, 2), (3, 1), (2, 5), (7, 3), (5, 5), (1, 23), (19, 1), (11, 9), (2, 17))
SQUARES = tuple((side, side) for side in range(1, 11))
_SILU = {"hidden_act": "silu"}


def changed(name: str, **fields: object) -> Case:
    return replace(CASES[name], **fields)  # type: ignore[arg-type]


MODELS: dict[str, Case] = {
    **{
        name: changed(name, side=128 if "gemma4" in name else case.side)
        for name, case in CASES.items()
    },
    "qwen3vl of one head": changed("qwen3vl", heads=1, patch=14, side=9),
    "qwen3vl of large squares": changed("qwen3vl-deep", merge=3, layers=4, deep=(1, 2, 3)),
    "gemma4v in standard form": changed("gemma4v", side=128, more={"standardize": True}),
    "gemma4v in ranges": changed(
        "gemma4v", side=128, heads=1, more={"use_clipped_linears": True}, layers=3
    ),
    "pixtral with silu": changed("pixtral", more=_SILU, patch=14),
    "pixtral with biases": changed("pixtral", projection={"multimodal_projector_bias": True}),
    "pixtral of single patches": changed("pixtral", merge=1, patch=5),
    "glm4v with biases": changed(
        "glm4v", heads=1, patch=14, side=9, more={"attention_bias": True, "hidden_act": "silu"}
    ),
    "resampler of several heads": changed("resampler", output=384, side=70, patch=3),
    "minicpmv4_6 merged at the end": changed("minicpmv4_6", merging=2, heads=9, patch=14, side=9),
    "minicpmv4_6 of more positions": changed("minicpmv4_6", side=70, merging=0, patch=3),
    "glm4v of large squares": changed("glm4v", merge=3, layers=3, side=24),
    "lfm2 without a norm": changed("lfm2", projection={"projector_use_layernorm": False}),
    "lfm2 of more positions": changed("lfm2", side=16, merge=3, heads=9),
    "idefics3 as published": changed("idefics3", side=10, merge=2, patch=2),
    "idefics3 of many squares": changed("idefics3", side=27, merge=3, patch=3),
}
# Their pictures have one size, the learned positions' own.
MODELS |= {
    f"gemma3 of {side} patches": changed("gemma3", side=side, merge=merge, patch=patch)
    for side, merge, patch in ((1, 1, 14), (2, 2, 5), (4, 4, 14), (6, 3, 7), (9, 3, 2), (12, 4, 14))
}
MODELS |= {
    f"internvl of {side} patches": changed("internvl", side=side, merge=merge, patch=patch)
    for side, merge, patch in (
        *((1, 1, 14), (2, 1, 3), (2, 2, 5), (4, 2, 14), (6, 2, 2), (8, 4, 5)),
        *((10, 2, 7), (14, 2, 14), (16, 4, 3), (32, 2, 2)),
    )
}
MODELS |= {
    f"llama4 of {side} patches": changed("llama4", side=side, heads=heads, patch=patch)
    for side, heads, patch in ((2, 3, 14), (4, 1, 5), (24, 3, 2))
}
MODELS |= {
    "internvl with silu": changed("internvl", more=_SILU),
    "internvl of one head": changed("internvl-large", heads=1, layers=3),
}


def sizes_of(case: Case) -> tuple[tuple[int, int], ...]:
    """Heights and widths of pictures."""
    if case.projector in ("gemma3", "internvl", "llama4"):
        return ((case.side * case.patch,) * 2,)
    grids = SQUARES if case.projector == "idefics3" else GRIDS
    pixels = case.merge * case.patch
    return tuple((rows * pixels, columns * pixels) for rows, columns in grids)


@pytest.mark.parametrize("name", MODELS)
def test_rows_of_any_picture_are_those_of_transformers(
    name: str, seed: int, tmp_path: Path
) -> None:
    model = oracle_vision.run(MODELS[name], seed, sizes_of(MODELS[name]))
    model.write(tmp_path / "mmproj.gguf")
    errors = {}
    for backend in BACKENDS:
        with GGUFFile.open(tmp_path / "mmproj.gguf") as file:
            encoder = build_encoder(file, BACKENDS[backend])
        for picture, rows in zip(model.pictures, model.rows, strict=True):
            found = encoder.encode(vision_files.pixels(model.case, picture)).double()
            wanted = torch.from_numpy(rows).double()
            assert found.shape == wanted.shape
            error = (found - wanted).square().sum() / wanted.square().sum()
            errors[backend, picture.shape] = float(error)
    print(f"{name}: at most {max(errors.values()):.0e}")
    assert max(errors.values()) <= LARGEST_ERROR, errors
