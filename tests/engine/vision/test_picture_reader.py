"""Pictures from files to pixels: what is seen of each kind of file, and what is refused and how."""

from __future__ import annotations

import io
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms

import vision_files
from engine.errors import Cancelled, RequestError
from engine.gguf.reader import GGUFFile
from engine.messages import Detail, ImagePart
from engine.processes.pool import ChildError, ChildFault, ChildPool
from engine.vision import picture_reader
from engine.vision.encoders import build_encoder
from engine.vision.picture import Picture, Tile
from engine.vision.picture_reader import PictureReader, levels
from engine.vision.projector_file import VisionConfig
from kernels.backends import BACKENDS
from oracle_pictures import PUBLISHED, some_image
from picture_files import FORMATS, HEIC, SVG, SameProcess, encoded, png, squares

# One tile of 32 x 32, so that values are those of a picture of this size.
CONFIG = replace(PUBLISHED["gemma3"], patch=8, image=32)
SIDE = CONFIG.image
RED, LIME, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


@cache
def recorded() -> dict[str, vision_files.Recorded]:
    return vision_files.recorded()


@pytest.fixture
def reader() -> PictureReader:
    """One that decodes in this process."""
    return PictureReader(CONFIG, SameProcess())


@pytest.fixture
def outside() -> Iterator[PictureReader]:
    """One with a child process."""
    made = PictureReader(CONFIG)
    yield made
    made.close()


def values(picture: Picture) -> np.ndarray[Any, Any]:
    """The pixels of its only tile, as u8."""
    return np.rint(picture.tiles[0].pixels().numpy() * 127.5 + 127.5).astype(np.uint8)


def corners(picture: Picture) -> list[tuple[int, ...]]:
    """The colours in its corners, in reading order."""
    found = values(picture)
    return [tuple(map(int, found[y, x])) for y in (1, -2) for x in (1, -2)]


def seen(reader: PictureReader, image: Image.Image, format: str = "PNG", **options: Any) -> list:
    return corners(reader.read(ImagePart(encoded(image, format, **options))))


def test_every_format_is_read_by_its_content(outside: PictureReader, tmp_path: Path) -> None:
    reader = outside
    for format, options in FORMATS.items():
        path = tmp_path / "a picture.txt"
        path.write_bytes(encoded(squares(), format, **options))
        picture = reader.read(ImagePart(path))
        assert (picture.width, picture.height) == reader.measure(ImagePart(path)) == (48, 32)
        away = np.array(corners(picture), int) - np.array([RED, LIME, BLUE, WHITE])
        assert np.abs(away).max() <= 12, format


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_a_picture_is_turned_as_its_camera_says(reader: PictureReader, format: str) -> None:
    wanted = squares(48, 64)
    stored = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }  # fmt: skip
    for orientation, turn in stored.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        content = encoded(wanted.transpose(turn), format, exif=exif, **FORMATS[format])
        picture = reader.read(ImagePart(content))
        assert (picture.width, picture.height) == reader.measure(ImagePart(content)) == (48, 64)
        away = np.array(corners(picture), int) - np.array([RED, LIME, BLUE, WHITE])
        assert np.abs(away).max() <= 12, orientation


def swapped_profile() -> bytes:
    """sRGB with the tags of red and green exchanged."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return profile.replace(b"rXYZ", b"????").replace(b"gXYZ", b"rXYZ").replace(b"????", b"gXYZ")


def _converted(image: Image.Image, profile: bytes) -> np.ndarray[Any, Any]:
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    made = ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB"))
    assert made is not None
    return np.asarray(made)


def test_colours_are_those_of_the_profile(reader: PictureReader) -> None:
    other = swapped_profile()
    for options in ({"format": "PNG"}, {"format": "TIFF"}, {"format": "WEBP", "lossless": True}):
        found = np.array(seen(reader, squares(), icc_profile=other, **options), int)
        assert np.abs(found - np.array([LIME, RED, BLUE, WHITE])).max() <= 2
    clear = squares().convert("RGBA")
    assert seen(reader, clear, icc_profile=other)[:1] != [RED]
    same = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    noise = some_image(SIDE, SIDE)
    at = int.from_bytes(same[(place := same.index(b"rXYZ") + 4) : place + 4], "big") + 11
    near = same[:at] + bytes([same[at] ^ 0x20]) + same[at + 1 :]  # a colour moved a little
    assert np.ptp(_converted(noise, near).astype(int) - np.asarray(noise)) > 0
    for profile in (b"", same, near, other[:150], b"\xff" * 500):
        picture = reader.read(ImagePart(encoded(noise, icc_profile=profile)))
        assert (values(picture) == np.asarray(noise)).all()


def test_what_is_transparent_is_white(reader: PictureReader) -> None:
    clear = squares().convert("RGBA")
    clear.putalpha(Image.new("L", clear.size, 51))
    for format in ("PNG", "WEBP", "TIFF", "TGA", "QOI"):
        assert seen(reader, clear, format, **FORMATS[format])[:1] == [(255, 204, 204)]
    grey = Image.merge("LA", (Image.new("L", (9, 9)), Image.new("L", (9, 9), 51)))
    assert seen(reader, grey) == [(204, 204, 204)] * 4
    palette = squares().quantize(8)
    index = palette.getpixel((0, 0))
    for format in ("PNG", "GIF"):
        assert seen(reader, palette, format, transparency=index)[0] == WHITE
    assert seen(reader, squares(), transparency=RED)[:2] == [WHITE, LIME]
    assert seen(reader, Image.new("L", (9, 9), 7), transparency=7) == [WHITE] * 4


def test_values_of_any_depth_become_8_bits(reader: PictureReader) -> None:
    def grey(value: int) -> list[tuple[int, int, int]]:
        return [(value,) * 3] * 4

    half = Image.new("I;16", (9, 9), 0x8000)
    assert seen(reader, half) == seen(reader, half, "TIFF") == grey(128)
    assert corners(reader.read(ImagePart(b"P5 2 2 65535\n" + b"\x80\0" * 4))) == grey(128)
    assert corners(reader.read(ImagePart(png(1, 1, b"\0\x80\0", 16, 0)))) == grey(128)
    assert (
        corners(reader.read(ImagePart(png(1, 1, b"\0\x80\0\x40\0\xff\xff", 16, 2))))
        == [(128, 64, 255)] * 4
    )
    assert seen(reader, Image.new("I;16B", (9, 9), 0x4000), "TIFF") == grey(64)
    assert corners(reader.read(ImagePart(_twelve_bits(0x800)))) == grey(127)
    assert seen(reader, Image.new("F", (9, 9), 0.5), "TIFF") == grey(127)
    assert seen(reader, Image.new("F", (9, 9), 200.0), "TIFF") == grey(200)
    stretched = Image.new("I", (2, 1), -5)
    stretched.putpixel((1, 0), 1_000_000)
    assert seen(reader, stretched, "TIFF") == [(0, 0, 0), WHITE] * 2
    assert seen(reader, Image.new("1", (9, 9), 1)) == [WHITE] * 4
    ink = Image.new("CMYK", (9, 9), (0, 255, 255, 0))
    assert seen(reader, ink, "TIFF") == [RED] * 4
    assert seen(reader, Image.new("LAB", (9, 9), (255, 128, 128)), "TIFF")[0] >= (250, 250, 250)


def _twelve_bits(value: int) -> bytes:
    """A TIFF of 2 x 1 values of 12 bits."""
    packed = (value << 12 | value).to_bytes(3, "big")
    tags = {256: 2, 257: 1, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 3}
    rows = [struct.pack("<HHII", tag, 4, 1, number) for tag, number in tags.items()]
    directory = struct.pack("<H", len(rows)) + b"".join(rows) + bytes(4)
    return b"II*\0" + struct.pack("<I", 12) + packed + b"\0" + directory


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "AVIF", "TIFF"])
def test_of_several_pictures_the_first_is_seen(reader: PictureReader, format: str) -> None:
    others = [Image.new("RGB", (48, 32), "black")] * 2
    found = seen(reader, squares(), format, save_all=True, append_images=others, **FORMATS[format])
    assert np.abs(np.array(found, int) - np.array([RED, LIME, BLUE, WHITE])).max() <= 12


def test_a_large_jpeg_is_decoded_whole_before_it_is_resized(reader: PictureReader) -> None:
    content = encoded(some_image(1500, 1100), "JPEG")

    whole = Image.open(io.BytesIO(content))
    wanted = np.asarray(whole.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    assert (values(reader.read(ImagePart(content))) == wanted).all()


def sentence(reader: PictureReader, source: Path | bytes, **options: Any) -> str:
    texts = set()
    for ask in (reader.read, reader.tokens):
        with pytest.raises(RequestError) as caught:
            ask(ImagePart(source, **options))
        assert str(caught.value).endswith(".")
        assert caught.value.remedy.endswith(".")
        texts.add(str(caught.value))
    return texts.pop()


def test_what_is_no_picture_is_refused_in_a_sentence(
    reader: PictureReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sentence(reader, b"") == "The picture is empty."
    assert "(SVG)" in sentence(reader, SVG)
    assert "HEIC" in sentence(reader, HEIC)
    assert "no picture" in sentence(reader, b"a text")
    assert "damaged" in sentence(reader, encoded(squares())[:40])
    assert "50,000 x 50,000 pixels" in sentence(reader, png(50_000, 50_000))
    assert "0 tokens" in sentence(reader, encoded(squares()), detail=0)
    away = tmp_path / "away\n.png"
    assert sentence(reader, away) == "The picture 'away\\n.png' is not there any more."
    assert "is no file" in sentence(reader, tmp_path)
    assert "cannot be opened" in sentence(reader, Path("a\0b"))
    monkeypatch.setattr(picture_reader, "MOST_BYTES", 99)
    away.write_bytes(bytes(100))
    assert "more than" in sentence(reader, away)
    assert "more than" in sentence(reader, bytes(100))


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes of POSIX")
def test_a_pipe_is_refused_and_not_waited_for(reader: PictureReader, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    assert "is no file" in sentence(reader, tmp_path / "pipe.png")


class Told(ChildPool):
    """Children that answer with what they are told to, and count their calls."""

    def __init__(self, *answers: list[bytes] | ChildFault) -> None:
        super().__init__()
        self.answers = list(answers)

    def call(self, *args: Any, **options: Any) -> list[bytes]:
        answer = self.answers.pop(0)
        if isinstance(answer, ChildFault):
            raise ChildError(answer)
        return answer


HEADER = b'{"width": 4, "height": 2}'
TILE = bytes(3 * SIDE**2)


@pytest.mark.parametrize("fault", [one for one in ChildFault if one is not ChildFault.CANCELLED])
def test_a_child_that_fails_is_told_in_a_sentence(fault: ChildFault) -> None:
    with pytest.raises(RequestError, match=r"The picture .*\.") as caught:
        PictureReader(CONFIG, Told(fault)).read(ImagePart(b"x"))
    assert caught.value.remedy


@pytest.mark.parametrize(
    "answers",
    [
        [[]],
        [[b"no JSON"]],
        [[b"[1, 2]"]],
        [[b'{"width": 4}']],
        [[b'{"width": 0, "height": 2}']],
        [[b'{"refusal": "other words", "width": 1, "height": 1}']],
        [[HEADER], [HEADER]],
        [[HEADER], [HEADER, TILE[1:]]],
        [[HEADER], [HEADER, TILE, TILE]],
        [[HEADER], [b'{"width": 5, "height": 2}', TILE], [b'{"width": 6, "height": 2}', TILE]],
    ],
)
def test_no_answer_of_a_child_is_trusted(answers: list[list[bytes]]) -> None:
    with pytest.raises(RequestError):
        PictureReader(CONFIG, Told(*answers)).read(ImagePart(b"x"))


def test_a_picture_of_another_size_than_its_header_says_is_planned_again() -> None:
    other = b'{"width": 40, "height": 20}'
    told = Told([HEADER], [other], [other, TILE])
    picture = PictureReader(CONFIG, told).read(ImagePart(b"x"))
    assert (picture.width, picture.height, told.answers) == (40, 20, [])


def test_pictures_that_were_read_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_reader, "_KEPT_BYTES", 2 * len(TILE))
    told = Told(*[[HEADER], [HEADER, TILE], [HEADER, TILE]], *[[HEADER], [HEADER, TILE]])
    reader = PictureReader(CONFIG, told)
    first, coarse = ImagePart(b"first"), ImagePart(b"first", Detail.LOW)
    kept = reader.read(first), reader.read(coarse)
    assert (reader.read(first), reader.read(coarse)) == kept
    reader.read(first)
    assert reader.tokens(first) == kept[0].rows == 1
    reader.read(ImagePart(b"second"))  # the picture that was not asked for longest is dropped
    assert reader.read(first) is kept[0]
    assert not told.answers
    with pytest.raises(IndexError):
        reader.read(coarse)


def test_a_file_that_changed_is_read_anew(reader: PictureReader, tmp_path: Path) -> None:
    path = tmp_path / "picture"
    for colour in (RED, BLUE):
        path.write_bytes(encoded(Image.new("RGB", (9, 9), colour)))
        assert corners(reader.read(ImagePart(path))) == [colour] * 4


def test_reading_can_be_cancelled(outside: PictureReader) -> None:
    reader = outside
    part = ImagePart(encoded(squares()))
    with pytest.raises(Cancelled):
        reader.read(part, lambda: True)
    assert reader.read(part).rows == 1
    reader.close()
    with pytest.raises(Cancelled):
        reader.read(replace(part, detail=Detail.LOW))


def tiles_of(picture: Picture) -> list[Tile]:
    return [*picture.tiles, *([picture.overview] if picture.overview else [])]


def test_equal_pictures_have_equal_keys_whatever_their_files(reader: PictureReader) -> None:
    keys = [
        reader.read(ImagePart(content)).tiles[0].key
        for content in (
            encoded(squares()),
            encoded(squares(), "BMP"),
            encoded(squares(), compress_level=0),
            encoded(squares().rotate(180)),
        )
    ]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert len(keys[0]) == 64
    # Of equal pixels another number of rows is made.
    others = PictureReader(replace(CONFIG, patch=4), reader._children)
    assert others.read(ImagePart(encoded(squares()))).tiles[0].key != keys[0]


def test_pixels_of_gemma4_are_0_to_1_whatever_its_file_states() -> None:
    config = replace(PUBLISHED["gemma4v"], mean=(0.5,) * 3, deviation=(0.5,) * 3)
    found = levels(config)
    assert (found[:, 0] == np.arange(256, dtype=np.float32) / np.float32(255)).all()
    assert levels(PUBLISHED["idefics3"])[[0, 255]].tolist() == [[-1] * 3, [1] * 3]


@pytest.mark.parametrize("name", [name for name in vision_files.CASES if "-" not in name])
def test_the_rows_of_a_picture_are_those_that_the_encoder_makes(
    name: str, reader: PictureReader, tmp_path: Path
) -> None:
    path = recorded()[name].write(tmp_path / "mmproj.gguf")
    with GGUFFile.open(path) as file:
        encoder = build_encoder(file, BACKENDS["cpu"])
    config: VisionConfig = encoder.config
    mine = PictureReader(config, reader._children)
    shapes = set()
    for width, height, detail in ((90, 60, 12), (20, 70, 9), (600, 500, Detail.STANDARD)):
        if name == "gemma4v" and detail is Detail.STANDARD:
            detail = 30  # its few learned positions are for no more
        part = ImagePart(encoded(some_image(width, height)), detail)
        picture = mine.read(part)
        assert picture.rows == mine.tokens(part)
        assert len(picture.tiles) == picture.grid[0] * picture.grid[1]
        for tile in tiles_of(picture)[-2:]:
            rows = encoder.encode(tile.pixels())
            assert len(rows) == tile.count
            breaks = tile.lines - 1 if name == "pixtral" else 0
            assert tile.count == tile.lines * tile.columns + breaks
            shapes.add((tile.lines, tile.columns))
            assert torch.isfinite(rows).all()
    assert len(shapes) >= (
        1 if name in ("gemma3", "idefics3", "internvl", "llama4", "resampler") else 2
    )
