"""Oracle: pictures through the image processors of Hugging Face transformers.

Run as a script (in an environment with transformers) it records `golden/pictures.json`. Those of
LFM2 need torchvision; here they get its resize of bytes, which is a function of torch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import sys
import types
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

from engine.vision.projector_file import VisionConfig

RECORDED = Path(__file__).parents[1] / "golden" / "pictures.json"
Pixels = NDArray[np.float32]  # [height, width, 3]
_CLIP_MEAN, _CLIP_DEVIATION = (
    (0.48145466, 0.4578275, 0.40821073),
    (0.26862954, 0.26130258, 0.27577711),
)
_IMAGENET_MEAN, _IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _config(projector: str, patch: int, merge: int, image: int, **more: Any) -> VisionConfig:
    """The sizes of a published model; of its weights, any."""
    fixed: dict[str, Any] = {
        "layers": 1,
        "width": 64,
        "heads": 4,
        "feed_forward": 64,
        "output": 64,
        "epsilon": 1e-6,
        "mean": (0.5, 0.5, 0.5),
        "deviation": (0.5, 0.5, 0.5),
        "silu": False,
        "deep": (),
    }
    made = {"projector": projector, "patch": patch, "merge": merge, "image": image}
    return VisionConfig(**{**fixed, **made, **more})


PUBLISHED = {
    # Qwen3-VL, Qwen3.5: all that the makers allow, which their mmproj files do not state
    "qwen3vl_merger": _config("qwen3vl_merger", 16, 2, 768, most_pixels=1 << 24),
    "gemma4v": _config("gemma4v", 16, 3, 896),
    "gemma4uv": _config("gemma4uv", 48, 1, 224),
    "gemma3": _config("gemma3", 14, 4, 896),
    # Mistral Small 3.1, Ministral 3
    "pixtral": _config("pixtral", 14, 2, 1540, mean=_CLIP_MEAN, deviation=_CLIP_DEVIATION),
    "lfm2": _config("lfm2", 16, 2, 256),
    "idefics3": _config("idefics3", 16, 4, 512),  # SmolVLM2
    # GLM-4.1V: as all that its makers allow, in single frames
    "glm4v": _config(
        "glm4v", 14, 2, 336, mean=_CLIP_MEAN, deviation=_CLIP_DEVIATION, most_pixels=4_816_896
    ),
    "minicpmv4_6": _config("minicpmv4_6", 14, 4, 448),
    "llama4": _config("llama4", 14, 2, 336),
    "resampler": _config("resampler", 14, 1, 448, queries=64),  # MiniCPM-V 2.6
    "internvl": _config("internvl", 14, 2, 448, mean=_IMAGENET_MEAN, deviation=_IMAGENET_DEVIATION),
}
SIZES = (  # width and height: the least, odd ones, extreme ratios, and more than a budget
    *((1, 1), (64, 48), (37, 91), (640, 480), (333, 1000), (1280, 1024)),
    *((3000, 50), (29, 2000), (1999, 1333), (5001, 3999)),
)
# Their processors resize by torchvision, whose rounding depends on the processor's instructions.
INEXACT = ("lfm2", "llama4")
QUICK = ((1, 1), (37, 91), (700, 333), (1000, 64))


def some_image(width: int, height: int, seed: int = 0) -> Image.Image:
    """A picture of noise over a slope, with values at both ends."""
    random = np.random.default_rng((width, height, seed))
    slope = np.linspace(-80, 335, width * height).reshape(height, width, 1)
    noise = random.integers(-90, 91, (height, width, 3))
    return Image.fromarray(np.clip(slope + noise, 0, 255).astype(np.uint8))


def processed(projector: str, image: Image.Image) -> list[Pixels]:
    """What transformers makes of a picture: tiles in reading order, then the overview."""
    logging.disable(logging.WARNING)
    config = PUBLISHED[projector]
    step, half = config.patch * config.merge, {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    match projector:
        case "qwen3vl_merger":
            from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
                Qwen2VLImageProcessorPil,
            )

            size = {"shortest_edge": 65_536, "longest_edge": 16_777_216}
            made = Qwen2VLImageProcessorPil(
                patch_size=config.patch, merge_size=config.merge, size=size, **half
            )(image)
            return [_from_squares(made, config)]
        case "glm4v":
            from transformers.models.glm4v.image_processing_pil_glm4v import (
                Glm4vImageProcessorPil,
            )

            size = {"shortest_edge": 12_544, "longest_edge": 9_633_792}  # of two frames
            return [_from_squares(Glm4vImageProcessorPil(size=size)(image), config)]
        case "gemma4v" | "gemma4uv":  # the latter's own needs torchvision, for the same steps
            from transformers.models.gemma4.image_processing_pil_gemma4 import (
                Gemma4ImageProcessorPil,
            )

            made = Gemma4ImageProcessorPil()(image)
            count = made["num_soft_tokens_per_image"][0] * 3**2
            columns = int(made["image_position_ids"][0][:count, 0].max()) + 1
            return [_from_patches(made["pixel_values"][0][:count], columns, 16)]
        case "gemma3":
            from transformers.models.gemma3.image_processing_pil_gemma3 import (
                Gemma3ImageProcessorPil,
            )

            size = {"height": config.image, "width": config.image}
            made = Gemma3ImageProcessorPil(size=size, **half)(image)
            return [_channels_last(made["pixel_values"][0])]
        case "pixtral":
            from transformers.models.pixtral.image_processing_pil_pixtral import (
                PixtralImageProcessorPil,
            )

            made = PixtralImageProcessorPil(size={"longest_edge": config.image})(
                image, patch_size={"height": step, "width": step}
            )
            return [_channels_last(made["pixel_values"][0])]
        case "idefics3":
            from transformers.models.smolvlm.image_processing_pil_smolvlm import (
                SmolVLMImageProcessorPil,
            )

            sizes = {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}}
            made = SmolVLMImageProcessorPil(**sizes)(image)
            return [_channels_last(one) for one in made["pixel_values"][0]]
        case "minicpmv4_6" | "resampler":
            from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import (
                MiniCPMV4_6ImageProcessorPil,
            )

            made = MiniCPMV4_6ImageProcessorPil()
            if projector == "resampler":  # transformers lacks its own, whose steps are patches
                made.find_best_resize = partial(_in_patches, made.find_best_resize)
            made = made(image)
            counts = [rows * columns for rows, columns in made["target_sizes"]]
            strips = np.split(made["pixel_values"][0], config.patch * np.cumsum(counts)[:-1], 2)
            overview, *tiles = (
                _from_strip(strip, rows, config.patch)
                for strip, (rows, _) in zip(strips, made["target_sizes"], strict=True)
            )
            return [*tiles, overview]
        case "internvl":
            from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import (
                GotOcr2ImageProcessorPil,
            )

            made = GotOcr2ImageProcessorPil(
                size={"height": config.image, "width": config.image},
                crop_to_patches=True,
                image_mean=config.mean,
                image_std=config.deviation,
            )(image)
            return [_channels_last(one) for one in made["pixel_values"]]
    if projector == "llama4":
        made = _of_torchvision("llama4", "Llama4ImageProcessor")(image, return_tensors="pt")
        return [_channels_last(one.float()) for one in made["pixel_values"].flatten(0, -4)]
    assert projector == "lfm2"
    made = _of_torchvision("lfm2_vl", "Lfm2VlImageProcessor")(image, return_row_col_info=True)
    tiles = []
    for patches, (rows, columns) in zip(
        made["pixel_values"].numpy(), made["spatial_shapes"].tolist(), strict=True
    ):
        tiles.append(_from_patches(patches[: rows * columns], columns, config.patch))
    return tiles


def _channels_last(values: Any) -> Pixels:
    return np.ascontiguousarray(np.moveaxis(np.asarray(values), 0, -1))


def _in_patches(
    find: Any, image_size: Any, scale_resolution: int, patch_size: int, **named: Any
) -> tuple[int, ...]:
    """What a function says of sizes in steps of four patches, in steps of one."""
    return tuple(map(int, find(image_size, scale_resolution, patch_size / 4, **named)))


def _from_strip(strip: Pixels, rows: int, side: int) -> Pixels:
    """A picture of patches [3, side, T * side] beside each other, in reading order."""
    lines = strip.reshape(3, side, rows, -1).transpose(2, 1, 3, 0)
    return np.ascontiguousarray(lines.reshape(rows * side, -1, 3))


def _from_squares(made: Any, config: VisionConfig) -> Pixels:
    """A picture of patches in squares, which the processor makes two equal frames of."""
    _, rows, columns = made["image_grid_thw"][0]
    merge, side = config.merge, config.patch
    squares = made["pixel_values"].reshape(
        rows // merge, columns // merge, merge, merge, 3, 2, side, side
    )
    assert (squares[..., 0, :, :] == squares[..., 1, :, :]).all()
    whole = squares[..., 0, :, :].transpose(0, 2, 5, 1, 3, 6, 4)
    return whole.reshape(rows * side, columns * side, 3)


def _from_patches(patches: Pixels, columns: int, side: int) -> Pixels:
    """A picture of patches [T, side * side * 3] in reading order."""
    cut = patches.reshape(-1, columns, side, side, 3).swapaxes(1, 2)
    return np.ascontiguousarray(cut.reshape(-1, columns * side, 3))


@cache
def _of_torchvision(family: str, processor: str) -> Any:
    """A processor whose module is imported with a part of torchvision in place of it."""
    from transformers import image_processing_backends as backends

    part: Any = types.SimpleNamespace(
        InterpolationMode=types.SimpleNamespace(LANCZOS="lanczos"),
        grayscale_to_rgb=lambda image: image,
        resize=_resize,
        normalize=_normalize,
        pad=lambda image, padding, fill: functional.pad(image, (0, padding[2], 0, padding[3])),
    )
    vars(backends).update(tvF=part, pil_torch_interpolation_mapping={2: "bilinear"})
    name = f"transformers.models.{family}.image_processing_{family}"
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    module: Any = importlib.util.module_from_spec(spec)
    module.tvF = part
    sys.modules[name] = module
    line = "from torchvision.transforms.v2 import functional as tvF"
    assert line in source
    exec(compile(source.replace(line, ""), spec.origin, "exec"), vars(module))
    return getattr(module, processor)()


def _resize(image: Any, size: Sequence[int], interpolation: str, antialias: bool) -> Any:
    assert image.dtype == torch.uint8
    return torch.nn.functional.interpolate(image, size, mode=interpolation, antialias=antialias)


def _normalize(image: Any, mean: Any, std: Any, inplace: bool) -> Any:
    mean, std = (torch.as_tensor(one, dtype=image.dtype).view(-1, 1, 1) for one in (mean, std))
    return image.sub(mean).div_(std)


def digest(tiles: Sequence[Pixels]) -> str:
    """A short hash of sizes and bits."""
    made = hashlib.sha256()
    for tile in tiles:
        made.update(repr(tile.shape).encode() + np.ascontiguousarray(tile, np.float32).tobytes())
    return made.hexdigest()[:16]


def record() -> None:
    """Write `golden/pictures.json`: the sizes of tiles, and hashes of their bits."""
    import PIL
    import transformers

    found: dict[str, Any] = {
        "origin": f"transformers {transformers.__version__}, Pillow {PIL.__version__}"
    }
    for projector in PUBLISHED:
        rows = {}
        for width, height in QUICK:
            tiles = processed(projector, some_image(width, height))
            shapes = [list(tile.shape[:2]) for tile in tiles]
            bits = "" if projector in INEXACT else digest(tiles)
            rows[f"{width} x {height}"] = {"tiles": shapes, "bits": bits}
        found[projector] = rows
    RECORDED.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
