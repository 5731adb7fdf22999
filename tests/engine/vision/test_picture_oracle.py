"""Pixels of pictures against the image processors of transformers: equal bits.

Those of LFM2 and Llama 4 resize with torchvision, whose rounding depends on the processor's instructions: its
sizes are equal, and its values differ by one level at most.
"""

from __future__ import annotations

import io
import json
from importlib.util import find_spec

import numpy as np
import PIL
import pytest
from PIL import Image

import oracle_pictures
from engine.messages import ImagePart
from engine.vision.picture import Picture
from engine.vision.picture_reader import PictureReader
from oracle_pictures import INEXACT, PUBLISHED, QUICK, RECORDED, SIZES, Pixels, some_image
from picture_files import SameProcess

LEVEL = 2 / 255 + 1e-6  # of pixels from -1 to 1
NEAR_SHARE = 0.25  # of values that differ at all; 0.21 measured


def tiles_of(picture: Picture) -> list[Pixels]:
    tiles = [*picture.tiles, *([picture.overview] if picture.overview else [])]
    return [tile.pixels().numpy() for tile in tiles]


def read(projector: str, image: Image.Image) -> Picture:
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=1)
    return PictureReader(PUBLISHED[projector], SameProcess()).read(ImagePart(stream.getvalue()))


@pytest.mark.parametrize("projector", PUBLISHED)
def test_pixels_are_those_that_transformers_makes(projector: str) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert recorded["origin"].endswith(f"Pillow {PIL.__version__}"), "record it again"
    for width, height in QUICK:
        row = recorded[projector][f"{width} x {height}"]
        tiles = tiles_of(read(projector, some_image(width, height)))
        assert [list(tile.shape[:2]) for tile in tiles] == row["tiles"]
        assert projector in INEXACT or oracle_pictures.digest(tiles) == row["bits"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("transformers") is None, reason="its processors are the oracle")
@pytest.mark.parametrize("projector", PUBLISHED)
def test_pixels_of_any_size_are_those_of_transformers(projector: str, seed: int) -> None:
    for width, height in SIZES:
        image = some_image(width, height, seed)
        wanted = oracle_pictures.processed(projector, image)
        tiles = tiles_of(read(projector, image))
        assert [tile.shape for tile in tiles] == [tile.shape for tile in wanted]
        if projector not in INEXACT:
            assert oracle_pictures.digest(tiles) == oracle_pictures.digest(wanted), (width, height)
            continue
        for tile, other in zip(tiles, wanted, strict=True):
            # Llama 4's are rounded to bfloat16, too
            assert np.abs(tile - other).max() <= (LEVEL if projector == "lfm2" else 2 * LEVEL)
            assert (tile != other).mean() <= NEAR_SHARE
