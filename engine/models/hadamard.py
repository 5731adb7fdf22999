"""The rotated matrices of a file: those of Bonsai 2, whose `prism.hadamard` keys name them.

Rows of the matrices are stored as a Hadamard transform of blocks of them times signs; the inputs of
their products are rotated likewise, and rows of a rotated embedding are rotated back.
Source: https://github.com/PrismML-Eng/llama.cpp/pull/121
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from kernels.ops.hadamard_rotation import HadamardRotation

_PREFIX = "prism.hadamard."
_KNOWN = (
    *("version", "block_size", "transform", "axis", "sign_mode", "sign_widths", "sign_values"),
    *("weight_names", "inverse_weight_names", "gdn_v_grouped", "tied_output"),
)
_ONLY = {"transform": "normalized-sylvester-walsh-hadamard", "axis": "input-last-dimension"}
_EMBEDDING = "token_embd.weight"  # the only table whose rows are rotated back
_LARGEST_BLOCK = 1 << 16
_DAMAGED = "The file is damaged or made by a faulty converter; get another copy."


@dataclass(frozen=True, slots=True)
class Rotations:
    """Which matrices are rotated, and how those of each width."""

    names: frozenset[str] = frozenset()  # of tensors
    block: int = 1
    signs: Mapping[int, Tensor] = field(default_factory=dict)  # by width; empty: without signs
    grouped: bool = False  # recurrent heads are in the order of their key heads where it matters
    _made: dict[tuple[int, torch.device], HadamardRotation] = field(default_factory=dict)

    def of_width(self, width: int, device: torch.device) -> HadamardRotation:
        """That of the inputs of matrices of so many columns."""
        key = width, device
        if key not in self._made:
            signs = self.signs[width].to(device) if self.signs else None
            self._made[key] = HadamardRotation(self.block, signs)
        return self._made[key]


def read_rotations(file: GGUFFile) -> Rotations:
    """The rotations that a file states, or none.

    Raises ModelFileError or UnsupportedModel naming the faulty key or tensor: a model that is
    rotated in another way than its file says would answer with noise.
    """
    keys = [key for key in file.metadata if key.startswith(_PREFIX)]
    if not keys:
        return Rotations()
    if unknown := [key for key in keys if key.removeprefix(_PREFIX) not in _KNOWN]:
        raise _unsupported(f"The key '{unknown[0]}' changes the rotation of the weights in a way")
    _check_version(file)
    for name, only in _ONLY.items():
        if file.string(_PREFIX + name) != only:
            raise _unsupported(f"The key '{_PREFIX}{name}' is not '{only}': it is a rotation")
    block = file.integer(f"{_PREFIX}block_size", minimum=1, maximum=_LARGEST_BLOCK)
    if block & (block - 1):
        raise ModelFileError(
            f"The key '{_PREFIX}block_size' is {block}; a power of two is wanted.", _DAMAGED
        )
    products, tables = _names(file, "weight_names"), _names(file, "inverse_weight_names")
    if not products:
        raise ModelFileError(f"The key '{_PREFIX}weight_names' names no tensor.", _DAMAGED)
    if products & {_EMBEDDING} or tables - {_EMBEDDING}:
        raise _unsupported(f"The key '{_PREFIX}inverse_weight_names' states a rotation")
    names = products | tables
    signs = _signs(file, block)
    for name in sorted(names):
        _check_width(file, name, block, signs)
    grouped = file.metadata.get(f"{_PREFIX}gdn_v_grouped", False)
    return Rotations(names, block, signs, bool(grouped))


def _check_version(file: GGUFFile) -> None:
    """Version 1, or 2, which adds that the head is the rotated embedding."""
    version = file.integer(f"{_PREFIX}version", minimum=0, maximum=1 << 16)
    tied = bool(file.metadata.get(f"{_PREFIX}tied_output", False))
    if version not in (1, 2) or tied != (version == 2):
        raise _unsupported(
            f"The key '{_PREFIX}version' is {version}"
            f"{' and the head is tied' if tied else ''}: it is a rotation"
        )
    if tied and "output.weight" in file.tensors:
        raise ModelFileError(
            f"The key '{_PREFIX}tied_output' says that the file has no tensor 'output.weight', "
            "but it has one.",
            _DAMAGED,
        )


def _names(file: GGUFFile, name: str) -> frozenset[str]:
    found = file.metadata.get(_PREFIX + name, [])
    strings = [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
    if not isinstance(found, list) or len(strings) < len(found):
        raise ModelFileError(f"The key '{_PREFIX}{name}' is not a list of names.", _DAMAGED)
    return frozenset(strings)


def _signs(file: GGUFFile, block: int) -> dict[int, Tensor]:
    """The signs of each width, which are stored one after the other."""
    mode = file.string(f"{_PREFIX}sign_mode")
    if mode == "identity":
        return {}
    if mode != "explicit":
        raise _unsupported(f"The key '{_PREFIX}sign_mode' is {mode!r}: it is a rotation")
    widths, values = _integers(file, "sign_widths"), _integers(file, "sign_values")
    fits = all(width > 0 and width % block == 0 for width in widths)
    if not widths or not fits or sum(widths) != len(values) or not set(values) <= {1, -1}:
        raise ModelFileError(
            f"The key '{_PREFIX}sign_values' has not a sign, 1 or -1, for each column of the widths "
            f"that '{_PREFIX}sign_widths' states in blocks of {block:,}.",
            _DAMAGED,
        )
    parts = torch.tensor(values, dtype=torch.float32).split(widths)
    return dict(zip(widths, parts, strict=True))


def _integers(file: GGUFFile, name: str) -> list[int]:
    found = file.metadata.get(_PREFIX + name)
    return [one for one in found if isinstance(one, int)] if isinstance(found, list) else []


def _check_width(file: GGUFFile, name: str, block: int, signs: Mapping[int, Tensor]) -> None:
    if name not in file.tensors:
        raise ModelFileError(
            f"The tensor '{name}', which the file says is rotated, is missing from it.",
            "The file is incomplete; download it again or choose another.",
        )
    width = file.tensors[name].shape[-1]
    if width % block or (signs and width not in signs):
        raise ModelFileError(
            f"The tensor '{name}' has {width:,} columns, for which the file states no rotation by "
            f"blocks of {block:,} columns.",
            _DAMAGED,
        )


def _unsupported(beginning: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{beginning} that this version does not support: answers would be noise.",
        "Choose another file of this model, or update the program.",
    )
