"""Hostile picture files: each gives a picture or one sentence, in a child process with limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import RequestError
from engine.messages import ImagePart
from engine.processes.pool import ChildLimits, ChildPool
from engine.vision.picture_reader import PictureReader
from oracle_pictures import PUBLISHED
from picture_files import Make, bombs, damaged_files, hostile_pictures, odd_files

# Far less than such a picture would take, and enough for all that are read.
LIMITS = ChildLimits(seconds=20, most_seconds=20, memory_bytes=400_000_000)
CONFIG = PUBLISHED["pixtral"]


def outcomes(files: dict[str, Make], folder: Path) -> dict[str, str]:
    """What became of each file: a size in pixels, or a sentence."""
    found: dict[str, str] = {}
    pool = ChildPool(LIMITS, most=1)
    reader = PictureReader(CONFIG, pool)
    try:
        for name, make in files.items():
            path = folder / name
            path.write_bytes(make())
            part = ImagePart(path)
            try:
                picture = reader.read(part)
                found[name] = f"{picture.width} x {picture.height}"
                assert reader.measure(part) == (picture.width, picture.height), name
                assert reader.tokens(part) == picture.rows, name
                assert picture.tiles[0].pixels().isfinite().all(), name
            except RequestError as error:
                found[name] = _sentence(name, error)
            path.unlink()
    finally:
        pool.close()
    return found


def _sentence(name: str, error: RequestError) -> str:
    """The sentence of an error, which names the file, and its remedy is another one."""
    text = str(error)
    assert name in text
    assert text.count(".") - name.count(".") == 1, text
    assert error.remedy.endswith("."), name
    return text


def test_bombs_and_oddities_give_a_picture_or_a_sentence(tmp_path: Path) -> None:
    found = outcomes({**odd_files(), **bombs()}, tmp_path)
    sentences = {
        "bomb.png": "has 50,000 x 50,000 pixels",
        "bomb.jpg": "has 65,500 x 65,500 pixels",
        "bomb.tiff": "has 50,000 x 50,000 pixels",
        "bomb in an icon.ico": "too much memory",
        "bomb of short data.png": "damaged",
        "empty.png": "empty",
        "links.png": "SVG",
        "links.svg": "SVG",
        "phone.heic": "HEIC",
        "script.eps": "no picture of a format",
        "metafile.wmf": "no picture of a format",
    }
    for name, words in sentences.items():
        assert words in found[name], found[name]
    sizes = {
        "turned.jpg": "32 x 48",
        "exif that loops.jpg": "48 x 32",
        "profile damaged.png": "48 x 32",
        "really a png.txt": "48 x 32",
        "bomb of frames.gif": "48 x 32",
        "long.png": "20000 x 1",
        "floats.tiff": "8 x 8",
        **{name: "1 x 1" for name in found if name.startswith("1 x 1.")},
    }
    assert {name: found[name] for name in sizes} == sizes
    assert not any("ends the process" in words for words in found.values())


def test_damaged_files_give_a_picture_or_a_sentence(tmp_path: Path, seed: int) -> None:
    files = dict(damaged_files(seed))
    found = outcomes(dict(list(files.items())[seed % 4 :: 4]), tmp_path)
    assert any("damaged" in words for words in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(10))
def test_no_hostile_file_does_more_than_give_a_sentence(
    turn: int, tmp_path: Path, seed: int
) -> None:
    files = hostile_pictures(seed + turn)
    assert len(files) >= 300
    outcomes(files, tmp_path)
