"""The tensor directory as named weights: shape checks, decoding, progress, and nothing left over."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile, TensorInfo
from kernels import ops
from kernels.formats import by_name
from kernels.weight import Storage, Weight


class Weights:
    """Hands a model its weights by GGUF name, each prepared once for the kernels in use.

    `progress(done, total)` counts file bytes and is called often enough for a window;
    `checkpoint()` may raise `Cancelled` between pieces of a tensor. With `read` False every check
    is made, but no tensor is touched: what is handed out has the right shape and holds nothing.
    `storage` names formats whose weights are not held as their kernels want them.
    """

    def __init__(
        self,
        file: GGUFFile,
        progress: Callable[[int, int], None] = lambda done, total: None,
        checkpoint: Callable[[], None] = lambda: None,
        *,
        read: bool = True,
        storage: Mapping[str, Storage] | None = None,
    ) -> None:
        self._file = file
        self._progress = progress
        self._checkpoint = checkpoint
        self._reading = read
        self._total = sum(info.size_bytes for info in file.tensors.values())
        self._done = 0
        self._used: set[str] = set()
        self._storage = storage or {}
        self._made: dict[str, list[Weight]] = {}  # by tensor
        self._origins: dict[int, tuple[str, int]] = {}  # by id of a weight: tensor and first row

    def matrix(self, name: str, rows: int, columns: int) -> Weight:
        """A weight [rows, columns] for products; raises ModelFileError when missing or misshapen."""
        return self._read(self._find(name, (rows, columns)))

    def optional_matrix(self, name: str, rows: int, columns: int) -> Weight | None:
        """The same where a file may leave it out."""
        return self.matrix(name, rows, columns) if name in self._file.tensors else None

    def parts(self, name: str, rows: Sequence[int], columns: int) -> list[Weight]:
        """Weights [rows, columns] for each of `rows`, which one tensor holds one after the other."""
        return self._parts(self._find(name, (sum(rows), columns)), rows)

    def experts(self, name: str, count: int, rows: int, columns: int) -> list[Weight]:
        """`count` weights [rows, columns] of one tensor [count, rows, columns]."""
        return self._parts(self._find(name, (count, rows, columns)), [rows] * count)

    def has(self, name: str) -> bool:
        """Whether the file has such a tensor."""
        return name in self._file.tensors

    def rows(self, name: str) -> int:
        """How many rows such a tensor of the file has; 0 where there is none."""
        info = self._file.tensors.get(name)
        return math.prod(info.shape[:-1]) if info else 0

    def vector(self, name: str, width: int) -> Tensor:
        """A norm or similar [width] f32."""
        return self._read(self._find(name, (width,))).dense().view(width)

    def table(self, name: str, rows: int, columns: int) -> Tensor:
        """Norms [rows, columns] f32, one in each row."""
        as_one = replace(self._find(name, (rows, columns)), shape=(rows * columns,))
        return self._read(as_one).dense().view(rows, columns)

    def optional_vector(self, name: str, width: int) -> Tensor | None:
        """The same where a file may leave it out."""
        return self.vector(name, width) if name in self._file.tensors else None

    def stored_rows(self, weight: Weight, rows: Tensor) -> Tensor | None:
        """Rows f32 [n, columns] of a weight made here, as the file has them; None for another."""
        if id(weight) not in self._origins:
            return None
        name, start = self._origins[id(weight)]
        info, columns = self._file.tensors[name], weight.columns
        row_bytes = info.format.row_bytes(columns)
        first, end = start * row_bytes, (start + weight.shape[0]) * row_bytes
        piece = self._file.data(name)[first:end]
        found = Weight.from_bytes(piece, info.format, weight.shape).rows(rows)
        self._file.let_go(name, first, end)  # a row brings many of its neighbours into memory
        return found

    def reread(self, storage: Mapping[str, Storage]) -> Weights:
        """The same weights for building the model once more; only the formats named are read again.

        The memory of their weights is given back with the model that uses them.
        """
        again = Weights(self._file, self._progress, self._checkpoint, storage=storage)
        tensors = self._file.tensors
        again._made = {
            name: made
            for name, made in self._made.items()
            if tensors[name].format.name not in storage
        }
        self._made, self._origins = {}, {}
        return again

    def refuse_leftovers(self) -> None:
        """Raise UnsupportedModel when the file holds a tensor the model made no use of.

        A bias or an expert that is silently ignored turns answers into noise; better to say so.
        """
        unused = sorted(set(self._file.tensors) - self._used)
        if unused:
            raise UnsupportedModel(
                f"The file holds {len(unused)} tensors this version has no use for, "
                f"such as '{unused[0]}': it is a variant that would answer wrongly.",
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
                f"the file's own keys ask for {list(shape)}.",
                "The file is damaged or made by a faulty converter; get another copy.",
            )
        return info

    def _read(self, info: TensorInfo) -> Weight:
        self._used.add(info.name)
        if not self._reading:
            return _placeholder(info)
        return self._made_of(info, [math.prod(info.shape[:-1])], info.shape)[0]

    def _parts(self, info: TensorInfo, rows: Sequence[int]) -> list[Weight]:
        """A tensor's rows in groups, each prepared by itself."""
        self._used.add(info.name)
        columns = info.shape[-1]
        if not self._reading:
            one = torch.ones(1)
            return [Weight(one.expand(n, columns), by_name("F32"), (n, columns)) for n in rows]
        return self._made_of(info, rows)

    def _made_of(
        self, info: TensorInfo, rows: Sequence[int], shape: tuple[int, ...] = ()
    ) -> list[Weight]:
        """The weights of a tensor, in groups of so many rows, or one of a `shape`."""
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
        else:  # kept from before
            self._count(info.size_bytes)
        return self._made[info.name]

    def _prepare(self, info: TensorInfo, weight: Weight, start: int) -> Weight:
        """Prepare a weight whose rows begin at `start` bytes of a tensor, holding few of its pages.

        A page that is let go of while it is still needed comes back from the system's own memory.
        """
        row_bytes = weight.size_bytes // weight.data.shape[0]

        def done(first: int, end: int) -> None:
            self._file.let_go(info.name, start + first * row_bytes, start + end * row_bytes)

        self._checkpoint()
        storage = self._storage.get(info.format.name, Storage.BACKEND)
        prepared = ops.prepare(weight, self._checkpoint, done, storage)
        self._count(weight.size_bytes)
        return prepared

    def _count(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self._total)


def _placeholder(info: TensorInfo) -> Weight:
    """A weight of a tensor's shape whose every value is the same one in memory."""
    rows, columns = math.prod(info.shape[:-1]), info.shape[-1]
    return Weight(torch.ones(1).expand(rows, columns), by_name("F32"), info.shape)
