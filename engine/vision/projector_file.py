"""What a file of a picture encoder (`mmproj`) states: sizes of its tower, and its projector."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.gguf.values import DAMAGED, shown

ARCHITECTURE = "clip"
_KEY = "clip.vision"
_FEED_FORWARD = "feed_forward_length"
# Where the file does not state it.
_MERGES = {
    **dict.fromkeys(("qwen3vl_merger", "internvl", "glm4v"), 2),
    **dict.fromkeys(("gemma4v", "gemma4uv"), 3),
    **dict.fromkeys(("gemma3", "minicpmv4_6"), 4),
}
# MiniCPM-V 2.6, o 2.6, V 4.0, V 4.5 and o 4.0, o 4.5, as their converter calls them
_MINICPM = (3, 4, 5, 6, 100_045)
# Without a tower: a patch is as large as what becomes a row.
_WITHOUT_TOWER = ("gemma4uv",)


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """Sizes of a picture encoder as its file states them."""

    projector: str  # "qwen3vl_merger": how its rows become those of the text model
    layers: int
    width: int  # D
    heads: int  # H
    feed_forward: int  # F
    patch: int  # pixels of a side
    image: int  # pixels of a side of the picture that its learned positions are for
    merge: int  # patches of a side that become one row
    output: int  # width of the text model
    epsilon: float
    mean: tuple[float, ...]  # of a channel of pixels from 0 to 1
    deviation: tuple[float, ...]
    silu: bool  # activation of the tower, where there are towers with others
    deep: tuple[int, ...]  # layers after which rows for deeper layers of the text model are made
    # What pictures are resized to; 0: the file does not state it.
    least_pixels: int = 0
    most_pixels: int = 0
    longest: int = 0  # pixels of the longer side, before the picture is divided
    least_tiles: int = 0  # that it is divided into
    most_tiles: int = 0
    queries: int = 0  # rows that every picture or tile becomes; 0: as its squares of patches
    merging: int = 0  # the layer after which patches are merged within the tower

    @property
    def head_width(self) -> int:
        """C, channels of a head."""
        return self.width // self.heads

    @property
    def pixels(self) -> int:
        """Values of a patch."""
        return 3 * self.patch**2


def read_projector(file: GGUFFile) -> str:
    """The kind of the projector; raises ModelFileError for a file without a picture encoder."""
    is_clip = file.string("general.architecture") == ARCHITECTURE
    if not is_clip or file.metadata.get("clip.has_vision_encoder") is False:
        raise ModelFileError(
            "The file has no picture encoder.",
            "Choose the mmproj file that is published beside the model.",
        )
    return file.string(f"{_KEY}.projector_type", "") or file.string("clip.projector_type")


def read_vision_config(file: GGUFFile) -> VisionConfig:
    """Read the sizes; raises ModelFileError naming the key that is missing or wrong."""
    projector = read_projector(file)
    is_tower = projector not in _WITHOUT_TOWER
    layers, heads, feed_forward = (
        file.integer(f"{_KEY}.{key}", minimum=1, maximum=1 << 24) if is_tower else value
        for key, value in (("block_count", 0), ("attention.head_count", 1), (_FEED_FORWARD, 0))
    )
    width = file.integer(f"{_KEY}.embedding_length", minimum=1, maximum=1 << 24)
    queries, output = _resampled(file) if projector == "resampler" else (0, 0)
    output = output or file.integer(f"{_KEY}.projection_dim", minimum=1, maximum=1 << 24)
    if width % heads or width // heads % 4:
        raise ModelFileError(
            f"{heads} attention heads cannot share {width} channels evenly.", DAMAGED
        )
    scale = file.integer(
        f"{_KEY}.projector.scale_factor", _MERGES.get(projector, 1), minimum=1, maximum=64
    )
    least, most = (
        file.integer(f"{_KEY}.{key}", 0, minimum=0, maximum=1 << 32)
        for key in ("image_min_pixels", "image_max_pixels")
    )
    least_tiles, most_tiles = (
        file.integer(f"{_KEY}.preproc_{key}_tiles", 0, minimum=0, maximum=128)
        for key in ("min", "max")
    )
    if least_tiles > most_tiles > 0:
        raise ModelFileError(
            f"The key '{_KEY}.preproc_min_tiles' is {least_tiles}, more than the most tiles.",
            DAMAGED,
        )
    patch = file.integer(f"{_KEY}.patch_size", minimum=1, maximum=1_024)
    return VisionConfig(
        projector=projector,
        layers=layers,
        width=width,
        heads=heads,
        # Files of GLM-4V state the width of the projector's MLP; the tower's is that of its rows.
        feed_forward=output if projector == "glm4v" else feed_forward,
        patch=patch if is_tower else patch * scale,
        image=file.integer(f"{_KEY}.image_size", minimum=1, maximum=1 << 16),
        merge=file.integer(f"{_KEY}.spatial_merge_size", scale, minimum=1, maximum=64)
        if is_tower
        else 1,
        output=output,
        epsilon=file.number(f"{_KEY}.attention.layer_norm_epsilon", 1e-6, minimum=0.0),
        mean=_channels(file, "image_mean"),
        deviation=_channels(file, "image_std"),
        silu=bool(file.metadata.get("clip.use_silu", False)),
        deep=tuple(at for at, is_deep in enumerate(_deep(file, layers)) if is_deep),
        least_pixels=least,
        most_pixels=most,
        longest=file.integer(f"{_KEY}.preproc_image_size", 0, minimum=0, maximum=1 << 16),
        least_tiles=least_tiles,
        most_tiles=most_tiles,
        queries=queries,
        merging=_merging(file, layers) if projector == "minicpmv4_6" else 0,
    )


def _channels(file: GGUFFile, key: str) -> tuple[float, ...]:
    """Three numbers, of red, green and blue."""
    found = file.metadata.get(f"{_KEY}.{key}", [0.5, 0.5, 0.5])
    listed = found if isinstance(found, list) else []
    numbers = tuple(float(one) for one in listed if isinstance(one, (int, float)))
    is_range = all(map(math.isfinite, numbers)) and (key == "image_mean" or all(numbers))
    if len(numbers) != 3 or not is_range:
        raise ModelFileError(f"The key '{_KEY}.{key}' is not three such numbers.", DAMAGED)
    return numbers


def _deep(file: GGUFFile, layers: int) -> list[bool]:
    found = file.metadata.get(f"{_KEY}.is_deepstack_layers", [])
    deep = [bool(one) for one in found] if isinstance(found, list) else []
    if len(deep) > layers:
        raise ModelFileError(
            f"The key '{_KEY}.is_deepstack_layers' has {len(deep)} values for {layers} layers.",
            DAMAGED,
        )
    return deep


def _resampled(file: GGUFFile) -> tuple[int, int]:
    """The queries of MiniCPM-V before 4.6 and their width, which its files state in no key.

    Raises UnsupportedModel for the first models, which are built otherwise.
    """
    if (version := file.integer("clip.minicpmv_version", 2, minimum=0)) not in _MINICPM:
        raise UnsupportedModel(
            f"The picture encoder is of a MiniCPM-V before 2.6 or unknown (version {version} in "
            "the file), which this version does not support.",
            "Chat with the model by text, or update the program.",
        )
    count = file.integer("clip.minicpmv_query_num", 0, minimum=0)  # 0: not stated
    shape = one.shape if (one := file.tensors.get("resampler.query")) else ()
    if len(shape) != 2 or count not in (0, shape[0]):
        raise ModelFileError(
            f"The tensor 'resampler.query' is missing or of the wrong shape, {list(shape)}.",
            DAMAGED,
        )
    return shape[0], shape[1]


def _merging(file: GGUFFile, layers: int) -> int:
    """The layer of a tower after which patches are merged: the first of a list."""
    key = f"{_KEY}.wa_layer_indexes"
    found = file.metadata.get(key)
    first = found[0] if isinstance(found, list) and found else None
    if not isinstance(first, int) or not 0 <= first < layers:
        raise ModelFileError(f"The key '{key}' names none of {layers} layers first.", DAMAGED)
    return first


def refuse_projector(name: str) -> UnsupportedModel:
    """The error for a projector that there is no encoder for."""
    return UnsupportedModel(
        f"The picture encoder is of the kind {shown(name)}, which this version does not support.",
        "Chat with the model by text, or update the program.",
    )
