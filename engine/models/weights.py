"""Loads a model's weights from GGUF tensors: shape checks, decoding, progress, unused tensors."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile, TensorInfo
from engine.models.expert_streamer import ExpertStreamer
from engine.models.file_table import FileTable
from engine.models.hadamard import read_rotations
from engine.models.layer_streamer import LayerStreamer
from kernels import backends
from kernels.backend.backend import Backend
from kernels.backend.placement import Placement
from kernels.ops import RowTable
from kernels.ops.hadamard_rotation import HadamardRotation
from kernels.weights.formats import by_name
from kernels.weights.weight import Storage, Weight

# How weights are stored other than as their backend prefers, by backend and format.
Storages = Mapping[tuple[str, str], Storage]
_LAYER = re.compile(r"blk\.(\d{1,6})\.")
_EMBEDDINGS = ("token_embd.", "position_embd.", "token_types.", "token_embd_norm.", "per_layer_")
# Tables of one row for each token and layer, most of the bytes of some models: they stay in the file.
FILE_TABLES = ("per_layer_token_embd.weight",)
_ROPE = "rope_"  # divisors of frequencies, which are computed on the host


def backend_of(tensor: str, placement: Placement) -> Backend:
    """The backend of the part of a model that a tensor belongs to; by its GGUF name."""
    if tensor.startswith(_ROPE):
        return backends.BACKENDS["reference"]
    if (layer := layer_of(tensor)) >= 0:
        return placement.layers[min(layer, len(placement.layers) - 1)]
    return placement.embedding if tensor.startswith(_EMBEDDINGS) else placement.head


def layer_of(tensor: str) -> int:
    """The number of the layer that a tensor belongs to, by its GGUF name; -1: none."""
    found = _LAYER.match(tensor)
    return int(found[1]) if found else -1


class Weights:
    """Loads weights by GGUF tensor name, each prepared once for the kernels in use.

    `progress(done, total)` counts file bytes and is called often enough for a progress bar;
    `checkpoint()` may raise `Cancelled` between chunks of a tensor. With `read` False every check
    is made, but no tensor data is read: the returned weights are placeholders of the right shape.
    The backends of `placement` prepare them, by default `backends.choose()` all of them; `storage`
    overrides how they are stored in memory. What `streamer` holds is not read: it reads
    that when it is needed.
    """

    def __init__(
        self,
        file: GGUFFile,
        progress: Callable[[int, int], None] = lambda done, total: None,
        checkpoint: Callable[[], None] = lambda: None,
        *,
        placement: Placement | None = None,
        read: bool = True,
        storage: Storages | None = None,
        streamer: LayerStreamer | ExpertStreamer | None = None,
    ) -> None:
        self.streamer = streamer
        self._given = placement
        self._placement = placement or Placement.on(backends.choose(), 1)
        self._file = file
        self._progress = progress
        self._checkpoint = checkpoint
        self._read_data = read
        self._total = sum(info.size_bytes for info in file.tensors.values())
        self._done = 0
        self._used: set[str] = set()
        self._ignored: set[str] = set()
        self._rotations = read_rotations(file)
        self._unrotated = set(self._rotations.names)  # of these, those no product was made of
        self._storage = storage or {}
        self._made: dict[tuple[str, str], list[Weight]] = {}  # by tensor and backend
        self._kept: set[tuple[str, str]] = set()  # of these, kept by `reread` and not yet used
        self._origins: dict[int, tuple[str, int]] = {}  # by id of a weight: tensor and first row

    @property
    def architecture(self) -> str:
        """The architecture that the file names."""
        return self._file.string("general.architecture")

    @property
    def names(self) -> frozenset[str]:
        """The names of all tensors of the file."""
        return frozenset(self._file.tensors)

    def offloaded(self, layers: int) -> tuple[int, ...]:
        """The number in the streamer of each of so many layers, -1 of those in memory."""
        streamer = self.streamer
        numbers = range(layers)
        return () if streamer is None else tuple(n if n in streamer.layers else -1 for n in numbers)

    def placement(self, layers: int) -> Placement:
        """The placement of a model of so many layers."""
        return self._given or Placement.on(self._placement.head, layers)

    def beside(self, name: str, values: Tensor) -> Tensor:
        """Values that are no tensor of the file, on the device of a tensor or block `name`."""
        return values.to(backend_of(f"{name}.", self._placement).device)

    def matrix(self, name: str, rows: int, columns: int, beside: str = "") -> Weight:
        """A matrix [rows, columns]; raises ModelFileError when missing or misshapen.

        It is on the backend of the tensor `beside`, or its own.
        """
        return self._read(self._find(name, (rows, columns)), beside or name)

    def file_table(self, name: str, rows: int, columns: int) -> RowTable:
        """A table [rows, columns] of `FILE_TABLES`, whose rows are read from the file; as `matrix`.

        Raises ModelFileError, also when the file cannot be opened a second time.
        """
        assert name in FILE_TABLES, name
        info = self._find(name, (rows, columns))
        self._used.add(name)
        if not self._read_data:
            return _placeholder(info)
        self._count(info.size_bytes)
        return FileTable(self._file.paths[info.part], info.offset, info.format, info.shape)

    def optional_matrix(self, name: str, rows: int, columns: int) -> Weight | None:
        """Like `matrix`, or None when the file has no such tensor."""
        return self.matrix(name, rows, columns) if name in self._file.tensors else None

    def parts(self, name: str, rows: Sequence[int], columns: int) -> list[Weight]:
        """Matrices [rows, columns], one for each of `rows`, stacked by rows in one fused tensor."""
        return self._parts(self._find(name, (sum(rows), columns)), rows)

    def experts(self, name: str, count: int, rows: int, columns: int) -> list[Weight]:
        """`count` matrices [rows, columns] of one tensor [count, rows, columns]."""
        return self._parts(self._find(name, (count, rows, columns)), [rows] * count, of_expert=1)

    def groups(self, name: str, groups: int, rows: Sequence[int], columns: int) -> list[Weight]:
        """Matrices of one tensor that has rows of each of them in every one of its groups.

        A tensor [groups * sum(rows), columns] → matrices [groups * n, columns], one for each n of
        `rows`. They are copied once, and always in memory.
        """
        firsts = sum(rows) * np.arange(groups)[:, None]
        starts = itertools.accumulate(rows, initial=0)
        orders = [
            (firsts + start + np.arange(count)).reshape(-1)
            for start, count in zip(starts, rows, strict=False)
        ]
        return self._reordered(self._find(name, (groups * sum(rows), columns)), orders)

    def ordered(self, name: str, order: Tensor, columns: int) -> Weight:
        """A matrix [rows, columns] whose row i is row order[i] of its tensor; copied once."""
        info = self._find(name, (len(order), columns))
        return self._reordered(info, [order.numpy()])[0]

    def flat_matrix(self, name: str, rows: int, columns: int) -> Weight:
        """A matrix [rows, columns], of which the file states either in several dimensions."""
        stated = self._file.tensors.get(name)
        given = (rows, columns) if stated is None else stated.shape
        splits = (given[:at] for at in range(1, len(given)))
        fits = math.prod(given) == rows * columns and rows in map(math.prod, splits)
        info = self._find(name, given if fits else (rows, columns))
        return self._read(replace(info, shape=(rows, columns)), name)

    def tables(self, name: str, count: int, columns: int) -> Tensor:
        """Tables [count, n, columns] f32 of vectors; n is what the tensor has."""
        shape = count, self.rows(name) // count, columns
        info = replace(self._find(name, shape), shape=(math.prod(shape),))
        return self._read(info, name).dense().view(shape)

    def heads(self, name: str, count: int, rows: int, columns: int) -> list[Weight]:
        """`count` matrices [rows, columns] of one tensor [count, rows, columns]: one per head."""
        return self._parts(self._find(name, (count, rows, columns)), [rows] * count)

    def row(self, name: str, columns: int) -> Weight:
        """A matrix [1, columns], which some files state as a vector."""
        return self._read(self._find(name, (1, columns)), name)

    def scalar(self, name: str, default: float = 1.0) -> float:
        """The value of a tensor [1] f32, or the default when the file has none."""
        if not self.has(name):
            return default
        info = self._find(name, (1,))
        self._used.add(name)
        if not self._read_data:
            return default
        self._count(info.size_bytes)
        return float(Weight.from_bytes(self._file.data(name), info.format, (1,)).dense())

    def ignore_scales(self, part: str) -> None:
        """Factors of the products of a part of every layer, such as "ffn": they are not read."""
        self._ignored |= {
            name
            for name in self._file.tensors
            if name.endswith(".scale") and f".{part}_" in name and layer_of(name) >= 0
        }

    def ignore(self, *names: str) -> None:
        """Tensors that are not needed, as if the file did not have them."""
        self._ignored.update(name for name in names if name in self._file.tensors)
        self._unrotated.difference_update(names)

    def ignore_layers(self, first: int) -> None:
        """Tensors of the layers from `first` on that the file counts: they predict further tokens."""
        count = self._file.integer(f"{self._file.string('general.architecture')}.block_count")
        layers = range(first, count)
        self.ignore(*(name for name in self._file.tensors if layer_of(name) in layers))

    def rotation(self, name: str, beside: str = "") -> HadamardRotation | None:
        """The rotation of the inputs of a matrix, on its device or that of the tensor `beside`."""
        if name not in self._rotations.names:
            return None
        self._unrotated.discard(name)
        device = backend_of(beside or name, self._placement).device
        return self._rotations.of_width(self._file.tensors[name].shape[-1], device)

    @property
    def rotates_grouped_heads(self) -> bool:
        """Whether the columns of rotated outputs of recurrences are grouped by key head."""
        return self._rotations.grouped

    def expert_pairs(self, name: str, count: int, rows: int, columns: int) -> list[Weight]:
        """2 * `count` matrices [rows, columns] of one tensor [count, 2 * rows, columns]."""
        info = self._find(name, (count, 2 * rows, columns))
        return self._parts(info, [rows] * (2 * count), of_expert=2)

    def has(self, name: str) -> bool:
        """Whether the file has a tensor of this name."""
        return name in self._file.tensors and name not in self._ignored

    def rows(self, name: str) -> int:
        """Rows of the tensor of this name; 0 when the file has none."""
        info = self._file.tensors.get(name)
        return math.prod(info.shape[:-1]) if info else 0

    def vector(self, name: str, width: int) -> Tensor:
        """A norm weight or bias [width] f32."""
        return self._read(self._find(name, (width,)), name).dense().view(width)

    def table(self, name: str, rows: int, columns: int) -> Tensor:
        """Norm weights [rows, columns] f32, one norm per row; dimensions of one do not count."""
        info = self._file.tensors.get(name)
        given = () if info is None else info.shape
        is_same = [n for n in given if n > 1] == [n for n in (rows, columns) if n > 1]
        as_one = replace(
            self._find(name, given if is_same else (rows, columns)), shape=(rows * columns,)
        )
        return self._read(as_one, name).dense().view(rows, columns)

    def optional_vector(self, name: str, width: int) -> Tensor | None:
        """Like `vector`, or None when the file has no such tensor."""
        return self.vector(name, width) if self.has(name) else None

    def stored_rows(self, weight: Weight, rows: Tensor) -> Tensor | None:
        """Rows f32 [n, columns] of a weight loaded here, decoded from the file; None for others."""
        if id(weight) not in self._origins:
            return None
        name, start = self._origins[id(weight)]
        info, columns = self._file.tensors[name], weight.columns
        row_bytes = info.format.row_bytes(columns)
        first, end = start * row_bytes, (start + weight.shape[0]) * row_bytes
        piece = self._file.data(name)[first:end]
        found = Weight.from_bytes(piece, info.format, weight.shape).rows(rows)
        self._file.drop_pages(name, first, end)  # one row maps whole pages
        return found

    def reread(
        self, storage: Storages, streamer: LayerStreamer | ExpertStreamer | None = None
    ) -> Weights:
        """The weights for building the model again; only those in `storage` are read again.

        Their old memory is freed with the model that uses them. With offloaded layers all are read
        again: others may be offloaded now.
        """
        reloaded = Weights(
            self._file,
            self._progress,
            self._checkpoint,
            placement=self._given,
            storage=storage,
            streamer=streamer,
        )
        reloaded._placement = self._placement
        if self.streamer is not None:
            self._made, self._origins = {}, {}
            return reloaded
        tensors = self._file.tensors
        reloaded._made = {
            (name, backend): made
            for (name, backend), made in self._made.items()
            if (backend, tensors[name].format.name) not in storage
        }
        reloaded._kept = set(reloaded._made)
        self._made, self._origins = {}, {}
        return reloaded

    def refuse_unused_tensors(self) -> None:
        """Raise UnsupportedModel when the model did not use every tensor of the file.

        Silently ignoring a bias or an expert would turn answers into noise.
        """
        unused = sorted(set(self._file.tensors) - self._used - self._ignored)
        if unused:
            raise UnsupportedModel(
                f"The file holds {len(unused)} tensors this version does not use, "
                f"such as '{unused[0]}': it is an unsupported variant that would answer wrongly.",
                "Choose the plain version of this model.",
            )
        if self._unrotated:
            raise UnsupportedModel(
                f"The tensor '{min(self._unrotated)}' is rotated by a Hadamard transform where this "
                "version does not support it: answers would be noise.",
                "Choose a file of this model without that transform.",
            )

    def _find(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        info = self._file.tensors.get(name)
        if info is None:
            raise ModelFileError(
                f"The tensor '{name}' is missing from the file.",
                "The file is incomplete; download it again or choose another.",
            )
        # Files saved by llama.cpp state no count of one row, and converters state it for vectors.
        if (1, *info.shape) == shape or info.shape == (1, *shape):
            info = replace(info, shape=shape)
        if info.shape != shape:
            raise ModelFileError(
                f"The tensor '{name}' has the shape {list(info.shape)}; "
                f"the file's metadata requires {list(shape)}.",
                "The file is damaged or made by a faulty converter; get another copy.",
            )
        return info

    def _read(self, info: TensorInfo, beside: str) -> Weight:
        self._used.add(info.name)
        if not self._read_data:
            return _placeholder(info)
        backend = backend_of(beside, self._placement)
        return self._made_of(info, backend, [math.prod(info.shape[:-1])], info.shape)[0]

    def _parts(self, info: TensorInfo, rows: Sequence[int], of_expert: int = 0) -> list[Weight]:
        """A tensor split by rows into weights that are prepared separately.

        Of a mixture, so many after each other are `of_expert`.
        """
        self._used.add(info.name)
        columns = info.shape[-1]
        if not self._read_data:
            one = torch.ones(1)
            made = {
                n: Weight(one.expand(n, columns), by_name("F32"), (n, columns)) for n in {*rows}
            }
            return [made[n] for n in rows]
        backend = backend_of(info.name, self._placement)
        return self._made_of(info, backend, rows, of_expert=of_expert)

    def _reordered(self, info: TensorInfo, orders: Sequence[np.ndarray[Any, Any]]) -> list[Weight]:
        """Weights of some rows of a tensor each, by their numbers."""
        self._used.add(info.name)
        columns = info.shape[-1]
        if not self._read_data:
            one = torch.ones(1)
            return [
                Weight(one.expand(n, columns), by_name("F32"), (n, columns))
                for n in map(len, orders)
            ]
        backend = backend_of(info.name, self._placement)
        key = info.name, backend.name
        if key in self._made:
            if key in self._kept:
                self._kept.remove(key)
                self._count(info.size_bytes)
            return self._made[key]
        whole = np.frombuffer(self._file.data(info.name), dtype=np.uint8)
        whole = whole.reshape(-1, info.format.row_bytes(columns))
        storage = self._storage.get((backend.name, info.format.name), Storage.BACKEND)
        made = self._made[key] = []
        for order in orders:
            self._checkpoint()
            weight = Weight.from_bytes(whole[order].tobytes(), info.format, (len(order), columns))
            nothing: Callable[[int, int], None] = lambda first, end: None  # noqa: E731
            made.append(backend.prepare(weight, self._checkpoint, nothing, storage))
            self._count(weight.size_bytes)
        self._file.drop_pages(info.name, 0, info.size_bytes)
        return made

    def _made_of(
        self,
        info: TensorInfo,
        backend: Backend,
        rows: Sequence[int],
        shape: tuple[int, ...] = (),
        of_expert: int = 0,
    ) -> list[Weight]:
        """The weights of a tensor, one for each of `rows`, or a single one of `shape`."""
        key = info.name, backend.name
        if key not in self._made:
            made = self._made[key] = []
            data, row_bytes = self._file.data(info.name), info.format.row_bytes(info.shape[-1])
            start = 0
            for at, count in enumerate(rows):
                expert = at // of_expert if of_expert else -1
                piece = data[start * row_bytes : (start + count) * row_bytes]
                weight = Weight.from_bytes(piece, info.format, shape or (count, info.shape[-1]))
                made.append(self._prepare(info, backend, weight, start * row_bytes, expert))
                self._origins[id(made[-1])] = info.name, start
                start += count
        elif key in self._kept:
            self._kept.remove(key)
            self._count(info.size_bytes)
        return self._made[key]

    def _prepare(
        self, info: TensorInfo, backend: Backend, weight: Weight, start: int, expert: int
    ) -> Weight:
        """Prepare a weight whose rows begin at byte `start` of a tensor, keeping few pages mapped.

        `expert`: whose it is; -1: of none.

        A page that is dropped too early is mapped again from the page cache.
        """
        row_bytes = weight.size_bytes // weight.data.shape[0]

        def done(first: int, end: int) -> None:
            self._file.drop_pages(info.name, start + first * row_bytes, start + end * row_bytes)

        self._checkpoint()
        storage = self._storage.get((backend.name, info.format.name), Storage.BACKEND)
        if self.streamer is not None and len(info.shape) > 1:
            layer = layer_of(info.name)
            if self.streamer.holds(layer, expert):
                self._count(weight.size_bytes)
                sizes = weight.format, weight.shape, info.part, info.offset + start
                return self.streamer.add(layer, expert, backend, storage, *sizes)
        prepared = backend.prepare(weight, self._checkpoint, done, storage)
        self._count(weight.size_bytes)
        return prepared

    def _count(self, size: int) -> None:
        self._file.check()
        self._done += size
        # A tied head on another backend than the embedding is read a second time.
        self._progress(min(self._done, self._total), self._total)


def _placeholder(info: TensorInfo) -> Weight:
    """A weight of a tensor's shape, without storage of that size: one value, expanded."""
    rows, columns = math.prod(info.shape[:-1]), info.shape[-1]
    return Weight(torch.ones(1).expand(rows, columns), by_name("F32"), info.shape)
