"""Picture files to pixels, in a child process: formats by their content, colours, resizes, tiles.

A request has the file's "content" and, unless only the size is wanted, "plan": the size that the
picture must have, a filter, and cuts (see `engine.vision.plans`). The first piece of the result is
JSON: the size of the picture as it is seen, or why it cannot be read. Then come the tiles of each
cut, u8 [height, width, 3].
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    CurImagePlugin,
    GifImagePlugin,
    IcoImagePlugin,
    Image,
    ImageCms,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PcxImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    QoiImagePlugin,
    TgaImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from engine.vision.refusals import MOST_PIXELS, Refusal

# Readers of other formats are not even imported: some start programs. TGA has no signature.
_FORMATS = tuple(
    plugin.format or ""
    for plugin in (
        PngImagePlugin.PngImageFile,
        JpegImagePlugin.JpegImageFile,
        GifImagePlugin.GifImageFile,
        WebPImagePlugin.WebPImageFile,
        BmpImagePlugin.BmpImageFile,
        TiffImagePlugin.TiffImageFile,
        AvifImagePlugin.AvifImageFile,
        Jpeg2KImagePlugin.Jpeg2KImageFile,
        IcoImagePlugin.IcoImageFile,
        CurImagePlugin.CurImageFile,
        PpmImagePlugin.PpmImageFile,
        QoiImagePlugin.QoiImageFile,
        PcxImagePlugin.PcxImageFile,
        TgaImagePlugin.TgaImageFile,
    )
)
_BEGINNINGS = (  # of files of these formats, which are damaged if they are not recognized
    *(b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"qoif", b"\0\0\1\0"),
    *(b"\0\0\0\x0cjP  ", b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"),
)
_HEIC = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")
_ORIENTATION = 0x0112  # a tag of EXIF
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDES_CHANGE = (5, 6, 7, 8)
_BITS = 258  # a tag of TIFF: bits of a sample
_FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_MOST_TEXT = 1 << 24  # bytes of a text or a colour profile in a PNG
_NEAR = 2  # levels: a profile that changes no colour by more is sRGB itself


class _RefusedError(Exception):
    """Raised for a picture that is not read."""

    def __init__(self, refusal: Refusal, width: int = 0, height: int = 0) -> None:
        super().__init__(refusal.value)
        self.answer = {"refusal": refusal.value, "width": width, "height": height}


def picture(request: Mapping[str, Any], report: Callable[[float], None]) -> Iterator[bytes]:
    """The task: the size of a picture, and the tiles of its plan if there is one."""
    del report
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # a child process may start none
    PngImagePlugin.MAX_TEXT_CHUNK = _MOST_TEXT
    plan = request.get("plan")
    try:
        image, turn = _open(request.get("content", b""))
        is_on_its_side = turn in map(_TURNS.get, _SIDES_CHANGE)
        width, height = image.size[::-1] if is_on_its_side else image.size
        if plan is None:
            yield json.dumps({"width": width, "height": height}).encode()
            return
        seen = _seen(image, turn)
    except _RefusedError as error:
        yield json.dumps(error.answer).encode()
        return
    yield json.dumps({"width": seen.width, "height": seen.height}).encode()
    if [seen.width, seen.height] == plan["size"]:  # else the header was wrong
        yield from _tiles(seen, _FILTERS[plan["filter"]], plan["cuts"])


def _open(content: bytes) -> tuple[ImageFile.ImageFile, Image.Transpose | None]:
    """A picture of which only the header was read, and how it is turned to be upright."""
    Image.MAX_IMAGE_PIXELS = None  # its own size is looked at here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(content), formats=_FORMATS)
        except UnidentifiedImageError:
            raise _RefusedError(_look(content)) from None
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  readers raise anything
            raise _RefusedError(Refusal.DAMAGED) from None
        if image.width * image.height > MOST_PIXELS:
            raise _RefusedError(Refusal.LARGE, *image.size)
        if not image.width * image.height:
            raise _RefusedError(Refusal.DAMAGED)
        return image, _turn(image)


def _look(content: bytes) -> Refusal:
    """Why a file without a reader is refused, by its first bytes."""
    if not content:
        return Refusal.EMPTY
    beginning = content[:4096].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if beginning.startswith(b"<svg") or (beginning.startswith(b"<") and b"<svg" in beginning):
        return Refusal.SVG
    if content[4:8] == b"ftyp" and content[8:12] in _HEIC:
        return Refusal.HEIC
    is_webp = content[:4] == b"RIFF" and content[8:12] == b"WEBP"
    is_avif = content[4:8] == b"ftyp" and content[8:12] in (b"avif", b"avis")
    if is_webp or is_avif or content.startswith(_BEGINNINGS):
        return Refusal.DAMAGED
    return Refusal.OTHER


def _turn(image: Image.Image) -> Image.Transpose | None:
    """How EXIF says that the picture is turned; Pillow's reader of TIFF does that itself."""
    if image.format == "TIFF":
        return None
    with warnings.catch_warnings(), suppress(Exception):  # EXIF may be anything
        warnings.simplefilter("ignore")
        # Not of the subclass: it would decode the whole of a PNG to look behind its pixels.
        return _TURNS.get(Image.Image.getexif(image).get(_ORIENTATION, 1))
    return None


def _seen(image: ImageFile.ImageFile, turn: Image.Transpose | None) -> Image.Image:
    """A picture as it is seen: decoded, upright, sRGB, on white."""
    Image.MAX_IMAGE_PIXELS = MOST_PIXELS  # of pictures within the file
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            image.load()
            upright = image if turn is None else image.transpose(turn)
            profile = image.info.get("icc_profile")
            plain = _eight_bits(upright)
            coloured = _in_srgb(plain, profile if isinstance(profile, bytes) else b"")
            return _on_white(coloured)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  readers raise anything
            raise _RefusedError(Refusal.DAMAGED) from None


def _eight_bits(image: Image.Image) -> Image.Image:
    """The picture with 8 bits for a channel, without palette: L, LA, RGB, RGBA, CMYK, LAB."""
    if image.mode.startswith("I;16"):
        bits = _sample_bits(image)
        if bits == 16:
            at = 0 if image.mode == "I;16B" else 1
            return Image.frombytes("L", image.size, image.tobytes()[at::2])
        return _scaled(image.convert("I"), 0, (1 << bits) - 1)
    if image.mode in ("I", "F"):
        least, most = image.getextrema()
        assert isinstance(least, (int, float))
        assert isinstance(most, (int, float))
        usual = (65_535,) if image.mode == "I" else (1, 255)
        top = next((one for one in usual if least >= 0 and most <= one), None)
        return _scaled(image, least, most) if top is None else _scaled(image, 0, top)
    if image.mode in ("PA", "La", "RGBa") or image.has_transparency_data:
        return image if image.mode in ("LA", "RGBA") else image.convert("RGBA")
    if image.mode == "1":
        return image.convert("L")
    return image if image.mode in ("L", "RGB", "CMYK", "LAB") else image.convert("RGB")


def _sample_bits(image: Image.Image) -> int:
    """Bits of a value that has room for 16; those of TIFF are not scaled."""
    tags = getattr(image, "tag_v2", None)
    bits = tags.get(_BITS) if tags is not None else None
    first = bits[0] if isinstance(bits, tuple) and bits else 16
    return first if isinstance(first, int) and 8 < first < 16 else 16


def _scaled(image: Image.Image, least: float, most: float) -> Image.Image:
    """Grey values of which `least` is black and `most` is white."""
    if image.mode == "I" and (least, most) == (0, 65_535):
        factor = 1 / 256  # as the higher byte, like that of other pictures of 16 bits
    else:
        factor = 255 / (most - least) if most > least else 1.0
    return image.point(lambda value: value * factor + -least * factor).convert("L")


def _in_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    """The picture's colours by its profile, or those of sRGB if that cannot be used: RGB(A), L(A)."""
    if image.mode == "LAB":
        source = ImageCms.createProfile("LAB")
        made = ImageCms.profileToProfile(image, source, _srgb(), outputMode="RGB")
        return made or image.convert("RGB")
    found = image
    if profile:
        with suppress(ImageCms.PyCMSError, OSError, ValueError, TypeError):
            found = _transformed(image, ImageCms.ImageCmsProfile(io.BytesIO(profile)))
    return found.convert("RGB") if found.mode == "CMYK" else found


def _transformed(image: Image.Image, source: ImageCms.ImageCmsProfile) -> Image.Image:
    """The picture from the colours of a profile to sRGB, if the profile is for such pictures."""
    space = str(getattr(source.profile, "xcolor_space", "")).strip()
    if space == "RGB" and image.mode in ("L", "LA"):
        image = image.convert("RGB" if image.mode == "L" else "RGBA")
    match space, image.mode:
        case "RGB", "RGB" | "RGBA":
            levels = bytes(range(0, 256, 17))
            grid = bytes(part for r in levels for g in levels for b in levels for part in (r, g, b))
            probe = Image.frombytes("RGB", (256, 16), grid)
            if _is_near(ImageCms.applyTransform(probe, _transform(source, "RGB")), probe):
                return image
            return ImageCms.applyTransform(image, _transform(source, image.mode)) or image
        case "GRAY", "L" | "LA":
            change = _transform(source, "L", "RGB")
            probe = Image.frombytes("L", (256, 1), bytes(range(256)))
            if _is_near(ImageCms.applyTransform(probe, change), probe.convert("RGB")):
                return image
            made = ImageCms.applyTransform(image.getchannel("L"), change)
            if made is not None and image.mode == "LA":
                made.putalpha(image.getchannel("A"))
            return made or image
        case "CMYK", "CMYK":
            return ImageCms.applyTransform(image, _transform(source, "CMYK", "RGB")) or image
        case _:
            return image


def _transform(
    source: ImageCms.ImageCmsProfile, mode: str, out: str | None = None
) -> ImageCms.ImageCmsTransform:
    return ImageCms.buildTransform(
        source,
        _srgb(),
        mode,
        out or mode,
        ImageCms.Intent.RELATIVE_COLORIMETRIC,
        ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )


def _srgb() -> ImageCms.ImageCmsProfile:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))


def _is_near(made: Image.Image | None, before: Image.Image) -> bool:
    """Whether no value was changed by more than a few levels."""
    if made is None:
        return True
    pairs = zip(made.tobytes(), before.tobytes(), strict=True)
    return all(abs(one - other) <= _NEAR for one, other in pairs)


def _on_white(image: Image.Image) -> Image.Image:
    """The picture without transparency: RGB."""
    if image.mode in ("LA", "RGBA"):
        alpha = image.getchannel("A")
        if alpha.getextrema() != (255, 255):
            white = Image.new("RGB", image.size, "white")
            white.paste(image.convert("RGB"), mask=alpha)
            return white
    return image if image.mode == "RGB" else image.convert("RGB")


def _tiles(
    image: Image.Image, filter: Image.Resampling, cuts: Sequence[Mapping[str, Any]]
) -> Iterator[bytes]:
    """The tiles of each cut; a resize that several begin with is done once."""
    made: dict[tuple[tuple[int, int], ...], Image.Image] = {(): image}
    for cut in cuts:
        done: tuple[tuple[int, int], ...] = ()
        for width, height in cut["sizes"]:
            before, done = made[done], (*done, (width, height))
            if done not in made:
                made[done] = before.resize((width, height), filter)
        whole, (lines, columns) = made[done], cut["grid"]
        if (canvas := cut.get("canvas")) is not None:  # black beside and below
            whole = Image.new("RGB", tuple(canvas))
            whole.paste(made[done])
        width, height = whole.width // columns, whole.height // lines
        for line in range(lines):
            for column in range(columns):
                left, top = column * width, line * height
                yield whole.crop((left, top, left + width, top + height)).tobytes()
