"""Loads a model's weights from GGUF tensors: shape checks, decoding, progress, unused tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile, TensorInfo
from kernels import backends
from kernels.backend import Backend
from kernels.formats import by_name
from kernels.weight import Storage, Weight


class Weights:
    """Loads weights by GGUF tensor name, each prepared once for the kernels in use.

    `progress(done, total)` counts file bytes and is called often enough for a progress bar;
    `checkpoint()` may raise `Cancelled` between chunks of a tensor. With `read` False every check
    is made, but no tensor data is read: the returned weights are placeholders of the right shape.
    `backend` prepares them, by default `backends.choose()`; `storage` overrides, by format, how
    they are stored in memory.
    """

    def __init__(
        self,
        file: GGUFFile,
        progress: Callable[[int, int], None] = lambda done, total: None,
        checkpoint: Callable[[], None] = lambda: None,
        *,
        backend: Backend | None = None,
        read: bool = True,
        storage: Mapping[str, Storage] | None = None,
    ) -> None:
        self.backend = backend or backends.choose()
        self._file = file
        self._progress = progress
        self._checkpoint = checkpoint
        self._read_data = read
        self._total = sum(info.size_bytes for info in file.tensors.values())
        self._done = 0
        self._used: set[str] = set()
        self._storage = storage or {}
        self._made: dict[str, list[Weight]] = {}  # by tensor
        self._origins: dict[int, tuple[str, int]] = {}  # by id of a weight: tensor and first row

    def matrix(self, name: str, rows: int, columns: int) -> Weight:
        """A matrix [rows, columns]; raises ModelFileError when missing or misshapen."""
        return self._read(self._find(name, (rows, columns)))

    def optional_matrix(self, name: str, rows: int, columns: int) -> Weight | None:
        """Like `matrix`, or None when the file has no such tensor."""
        return self.matrix(name, rows, columns) if name in self._file.tensors else None

    def parts(self, name: str, rows: Sequence[int], columns: int) -> list[Weight]:
        """Matrices [rows, columns], one for each of `rows`, stacked by rows in one fused tensor."""
        return self._parts(self._find(name, (sum(rows), columns)), rows)

    def experts(self, name: str, count: int, rows: int, columns: int) -> list[Weight]:
        """`count` matrices [rows, columns] of one tensor [count, rows, columns]."""
        return self._parts(self._find(name, (count, rows, columns)), [rows] * count)

    def has(self, name: str) -> bool:
        """Whether the file has a tensor of this name."""
        return name in self._file.tensors

    def rows(self, name: str) -> int:
        """Rows of the tensor of this name; 0 when the file has none."""
        info = self._file.tensors.get(name)
        return math.prod(info.shape[:-1]) if info else 0

    def vector(self, name: str, width: int) -> Tensor:
        """A norm weight or bias [width] f32."""
        return self._read(self._find(name, (width,))).dense().view(width)

    def table(self, name: str, rows: int, columns: int) -> Tensor:
        """Norm weights [rows, columns] f32, one norm per row."""
        as_one = replace(self._find(name, (rows, columns)), shape=(rows * columns,))
        return self._read(as_one).dense().view(rows, columns)

    def optional_vector(self, name: str, width: int) -> Tensor | None:
        """Like `vector`, or None when the file has no such tensor."""
        return self.vector(name, width) if name in self._file.tensors else None

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

    def reread(self, storage: Mapping[str, Storage]) -> Weights:
        """The weights for building the model again; only the formats in `storage` are read again.

        Their old memory is freed with the model that uses them.
        """
        reloaded = Weights(
            self._file, self._progress, self._checkpoint, backend=self.backend, storage=storage
        )
        tensors = self._file.tensors
        reloaded._made = {
            name: made
            for name, made in self._made.items()
            if tensors[name].format.name not in storage
        }
        self._made, self._origins = {}, {}
        return reloaded

    def refuse_unused_tensors(self) -> None:
        """Raise UnsupportedModel when the model did not use every tensor of the file.

        Silently ignoring a bias or an expert would turn answers into noise.
        """
        unused = sorted(set(self._file.tensors) - self._used)
        if unused:
            raise UnsupportedModel(
                f"The file holds {len(unused)} tensors this version does not use, "
                f"such as '{unused[0]}': it is an unsupported variant that would answer wrongly.",
                "Choose the plain version of this model.",
            )

    def _find(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        info = self._file.tensors.get(name)
        if info is None:
            raise ModelFileError(
                f"The tensor '{name}' is missing from the file.",
                "The file is incomplete; download it again or choose another.",
            )
        if info.shape != shape:
            raise ModelFileError(
                f"The tensor '{name}' has the shape {list(info.shape)}; "
                f"the file's metadata requires {list(shape)}.",
                "The file is damaged or made by a faulty converter; get another copy.",
            )
        return info

    def _read(self, info: TensorInfo) -> Weight:
        self._used.add(info.name)
        if not self._read_data:
            return _placeholder(info)
        return self._made_of(info, [math.prod(info.shape[:-1])], info.shape)[0]

    def _parts(self, info: TensorInfo, rows: Sequence[int]) -> list[Weight]:
        """A tensor split by rows into weights that are prepared separately."""
        self._used.add(info.name)
        columns = info.shape[-1]
        if not self._read_data:
            one = torch.ones(1)
            return [Weight(one.expand(n, columns), by_name("F32"), (n, columns)) for n in rows]
        return self._made_of(info, rows)

    def _made_of(
        self, info: TensorInfo, rows: Sequence[int], shape: tuple[int, ...] = ()
    ) -> list[Weight]:
        """The weights of a tensor, one for each of `rows`, or a single one of `shape`."""
        if info.name not in self._made:
            made = self._made[info.name] = []
            data, row_bytes = self._file.data(info.name), info.format.row_bytes(info.shape[-1])
            start = 0
            for count in rows:
                piece = data[start * row_bytes : (start + count) * row_bytes]
                weight = Weight.from_bytes(piece, info.format, shape or (count, info.shape[-1]))
                made.append(self._prepare(info, weight, start * row_bytes))
                self._origins[id(made[-1])] = info.name, start
                start += count
        else:  # kept by `reread`
            self._count(info.size_bytes)
        return self._made[info.name]

    def _prepare(self, info: TensorInfo, weight: Weight, start: int) -> Weight:
        """Prepare a weight whose rows begin at byte `start` of a tensor, keeping few pages mapped.

        A page that is dropped too early is mapped again from the page cache.
        """
        row_bytes = weight.size_bytes // weight.data.shape[0]

        def done(first: int, end: int) -> None:
            self._file.drop_pages(info.name, start + first * row_bytes, start + end * row_bytes)

        self._checkpoint()
        storage = self._storage.get(info.format.name, Storage.BACKEND)
        prepared = self.backend.prepare(weight, self._checkpoint, done, storage)
        self._count(weight.size_bytes)
        return prepared

    def _count(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self._total)


def _placeholder(info: TensorInfo) -> Weight:
    """A weight of a tensor's shape, without storage of that size: one value, expanded."""
    rows, columns = math.prod(info.shape[:-1]), info.shape[-1]
    return Weight(torch.ones(1).expand(rows, columns), by_name("F32"), info.shape)
