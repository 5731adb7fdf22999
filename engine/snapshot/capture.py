"""Snapshot of a session: capture, write, and a bit-exact restore.

A snapshot has the tokens, the KV cache as stored in memory, the logits after the last token and
the sampler state. Its metadata identifies the model, adapter stack and cache type; a restore into
a session where any of them differs is refused with the reason.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

import torch
from torch import Tensor

from engine.errors import Cancelled, Fault, FaultKind, RequestError, SnapshotError
from engine.host.background import BackgroundTask
from engine.inference.sampling import Sampler
from engine.inference.session import SamplerState, Session
from engine.messages import Sampling
from engine.snapshot import file as snapshot_file
from engine.snapshot.file import REPROCESS, Damaged, Data, Entry, Header
from engine.state.cache_lease import CacheLease

_TYPES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.int32: "I32",
    torch.int8: "I8",
    torch.uint8: "U8",
}
_MAX_NAMES, _MAX_CHARACTERS = 4, 64  # of text from a file in an error message
_TOKENS, _LOGITS, _RANDOM = "tokens", "logits", "random"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a session at one moment, to be written once or released.

    The KV cache is not copied: a copy-on-write lease preserves it while the session continues.
    """

    metadata: Mapping[str, str]  # without the model's hash
    layout: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]  # of the KV cache's tensors
    cache: CacheLease
    tensors: Mapping[str, Tensor]  # everything else, copied

    @property
    def tokens(self) -> int:
        """Number of tokens, the pending one included."""
        return len(self.tensors[_TOKENS])

    @property
    def token_bytes(self) -> bytes:
        """The token ids as in the file: i32, little-endian."""
        return bytes(_bytes(self.tensors[_TOKENS]))

    def release(self) -> None:
        """End the lease on the session's cache."""
        self.cache.release()


def session_bytes(session: Session) -> int:
    """Approximate size of a snapshot of the session: the KV cache without metadata."""
    layout = session.cache.layout(len(session.tokens)).values()
    return sum(dtype.itemsize * shape[0] * shape[1] * shape[2] for dtype, shape in layout)


def capture(session: Session, *, model: str, architecture: str, conversation: str = "") -> Snapshot:
    """Snapshot of a session with at least one token.

    `model` is a display name; `conversation` is the id that snapshots are looked up by.
    """
    length = len(session.tokens)
    assert length, "cannot capture an empty session"
    tensors = {_TOKENS: torch.tensor(session.all_tokens, dtype=torch.int32)}
    with torch.inference_mode():
        if session.last_logits is not None:
            tensors[_LOGITS] = session.last_logits.clone()
    sampling = ""
    if session.sampler_state is not None:
        sampling = json.dumps(asdict(session.sampler_state.sampling))
        tensors[_RANDOM] = session.sampler_state.random.clone()
    metadata = {
        "model": model,
        "architecture": architecture,
        "stack": session.stack.key,
        "adapters": json.dumps(
            [
                {"name": adapter.name, "sha256": adapter.sha256, "strength": strength}
                for adapter, strength in session.stack.entries
            ]
        ),
        "cache": session.cache.type.value,
        "context": str(session.context),
        "sampling": sampling,
        "tokens": str(length),  # in the KV cache; the tensor may have one more, the pending one
        "conversation": conversation,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Snapshot(metadata, session.cache.layout(length), session.cache.lease(), tensors)


def write(snapshot: Snapshot, path: Path, model_sha256: str) -> int:
    """Write a snapshot atomically and release it; returns the file's size in bytes.

    Raises OSError.
    """
    parts = (part for layer in snapshot.cache.layers() for part in layer)
    small = [
        Data(name, _TYPES[tensor.dtype], tuple(tensor.shape), (_bytes(tensor),))
        for name, tensor in snapshot.tensors.items()
    ]
    cache = [
        Data(name, _TYPES[dtype], shape, _next_rows(parts))
        for name, (dtype, shape) in snapshot.layout.items()
    ]
    metadata = {"model_sha256": model_sha256, **snapshot.metadata}
    try:
        return snapshot_file.write(path, metadata, [*small[:1], *cache, *small[1:]])
    finally:
        snapshot.release()


def _next_rows(parts: Iterator[Tensor]) -> Iterator[memoryview]:
    """The memory of the next of `parts` [K, T, width], one contiguous view per head."""
    yield from map(_bytes, next(parts))


def restore(
    path: Path,
    session: Session,
    model_sha256: str,
    checkpoint: Callable[[], None] = lambda: None,
) -> None:
    """Replace the session's state by that of a snapshot file.

    Raises SnapshotError when the file is damaged or does not match the model, adapters and cache
    type, and what `checkpoint` raises: the session is then unchanged, or empty if the context is
    too small for the old and the new tokens together.
    """
    try:
        with path.open("rb") as file, path.open("rb") as hashed_file:
            if not os.path.samestat(os.fstat(file.fileno()), os.fstat(hashed_file.fileno())):
                raise Damaged  # the file was replaced between the two opens
            header = snapshot_file.read_header(file)
            # Hashing takes as long as reading, so it runs on a second thread.
            ended = threading.Event()
            verification = BackgroundTask(
                lambda: snapshot_file.verify(hashed_file, header, _cancelled_by(ended)), "verify"
            )
            try:
                snapshot_file.check_version(header.metadata)
                check_origin(header.metadata, session, model_sha256)
                reader = _SnapshotReader(file, header, session)
                reader.read(checkpoint)
                verification.result(checkpoint)
                reader.load()
            except SnapshotError:
                # A wrong digest is the cause of other errors, so report that first.
                verification.result(checkpoint)
                raise
            finally:
                ended.set()
                verification.wait()
    except OSError as error:
        raise SnapshotError(
            f"The saved session cannot be read: {error.strerror or error}.", REPROCESS
        ) from error


def _cancelled_by(ended: threading.Event) -> Callable[[], None]:
    """A checkpoint that raises Cancelled once `ended` is set."""

    def checkpoint() -> None:
        if ended.is_set():
            raise Cancelled

    return checkpoint


def check_origin(metadata: Mapping[str, str], session: Session, model_sha256: str) -> None:
    """Raise SnapshotError for a snapshot of another model, adapter stack, cache type or size."""
    if metadata.get("model_sha256") != model_sha256:
        name = _printable(metadata.get("model", ""))
        raise SnapshotError(
            f"The session was saved with another model{f', {name}' if name else ''}.",
            "Load that model, or process the conversation again.",
            Fault(FaultKind.SAVED_MODEL, name),
        )
    if metadata.get("stack") != session.stack.key:
        raise SnapshotError(
            f"The session was saved {_adapters_clause(metadata)}.",
            "Set the same adapters and strengths, or process the conversation again.",
            Fault(FaultKind.SAVED_ADAPTERS),
        )
    if metadata.get("cache") != session.cache.type.value:
        raise SnapshotError(
            f"The session was saved with a cache of type {_printable(metadata.get('cache', ''))}, "
            f"and the model is loaded with {session.cache.type.value}.",
            "Load the model with that cache type, or process the conversation again.",
            Fault(FaultKind.SAVED_CACHE),
        )
    tokens = _parse_count(metadata.get("tokens", ""))
    if tokens > session.context:
        raise SnapshotError(
            f"The saved session holds {tokens:,} tokens, and the context only {session.context:,}.",
            "Load the model with a larger context, or process the conversation again.",
            Fault(FaultKind.SAVED_LENGTH),
        )


class _SnapshotReader:
    """Checks a snapshot file's header, reads its tensors, and loads them into a session."""

    def __init__(self, file: BinaryIO, header: Header, session: Session) -> None:
        self._file, self._header, self._session = file, header, session
        self._length = _parse_count(header.metadata.get("tokens", ""))
        self._layout: dict[str, tuple[str, tuple[int, ...]]] = {
            name: (_TYPES[dtype], shape)
            for name, (dtype, shape) in session.cache.layout(self._length).items()
        }
        vocabulary = session.model.head.weight.shape[0]
        self._tokens = self._checked_tokens(vocabulary)
        self._check_entries(vocabulary)

    def read(self, checkpoint: Callable[[], None]) -> None:
        """Read everything into a new cache, the small tensors first."""
        self._logits = self._tensor(_LOGITS, torch.float32)
        self._sampler = self._sampler_state()
        session = self._session
        if len(session.tokens) + self._length > session.context:
            session.clear()
        self._cache = session.cache.fresh()
        tensors = self._cache.tensors(self._length, checkpoint)
        for name, view in zip(self._layout, tensors, strict=True):
            checkpoint()
            entry = self._header.tensors[name]
            snapshot_file.read_into(self._file, entry, map(_bytes, view))

    def load(self) -> None:
        """Load the verified contents into the session."""
        self._session.load(self._cache, self._tokens, self._length, self._logits, self._sampler)

    def _checked_tokens(self, vocabulary: int) -> list[int]:
        entry = self._header.tensors.get(_TOKENS)
        lengths = ((self._length,), (self._length + 1,))
        if not self._length or entry is None or entry.dtype != "I32" or entry.shape not in lengths:
            raise Damaged
        tokens = cast("list[int]", self._read(entry, torch.int32).tolist())
        if min(tokens) < 0 or max(tokens) >= vocabulary:
            raise Damaged
        return tokens

    def _check_entries(self, vocabulary: int) -> None:
        """Raise SnapshotError unless the file has exactly the expected tensors and shapes."""
        expected = dict(self._layout)
        known = {_TOKENS, snapshot_file.DIGEST, _RANDOM}
        if _LOGITS in self._header.tensors:
            expected[_LOGITS] = ("F32", (vocabulary,))
        for name, (dtype, shape) in expected.items():
            entry = self._header.tensors.get(name)
            if entry is None or (entry.dtype, entry.shape) != (dtype, shape):
                raise Damaged
        if set(self._header.tensors) - known - set(expected):
            raise Damaged

    def _sampler_state(self) -> SamplerState | None:
        text = self._header.metadata.get("sampling", "")
        random = self._tensor(_RANDOM, torch.uint8)
        if not text and random is None:
            return None
        sampling = _sampling(text)
        if random is None:
            raise Damaged
        try:
            Sampler(sampling).resume(random)
        except (RequestError, ValueError):
            raise Damaged from None
        return SamplerState(sampling, random)

    def _tensor(self, name: str, dtype: torch.dtype) -> Tensor | None:
        entry = self._header.tensors.get(name)
        return None if entry is None else self._read(entry, dtype)

    def _read(self, entry: Entry, dtype: torch.dtype) -> Tensor:
        """A small tensor [N]; its size was checked against the file's before allocation."""
        if entry.dtype != _TYPES[dtype] or len(entry.shape) != 1:
            raise Damaged
        tensor = torch.empty(entry.shape, dtype=dtype)
        snapshot_file.read_into(self._file, entry, [_bytes(tensor)])
        return tensor


def _bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor as a writable view of bytes."""
    return tensor.numpy().data.cast("B")


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise Damaged
    return int(text)


def _sampling(text: str) -> Sampling:
    """Sampling parameters from the JSON that `capture` writes."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Damaged from None
    default = asdict(Sampling())
    if not isinstance(found, dict) or set(found) != {field.name for field in fields(Sampling)}:
        raise Damaged
    values = cast("dict[str, float]", found)
    for name, value in values.items():
        is_integer = type(default[name]) is int
        if type(value) is not int and (is_integer or type(value) is not float):
            raise Damaged
    return Sampling(**values)  # pyright: ignore[reportArgumentType]  # checked above


def _printable(text: str) -> str:
    """Text from a file for an error message: truncated, without unprintable characters."""
    return "".join(letter for letter in text[:_MAX_CHARACTERS] if letter.isprintable())


def _adapters_clause(metadata: Mapping[str, str]) -> str:
    names = list(_adapter_names(metadata.get("adapters", "")))
    if not metadata.get("stack") or not names:
        return "without adapters"
    more = ", ..." if len(names) > _MAX_NAMES else ""
    return f"with other adapters or strengths ({', '.join(names[:_MAX_NAMES])}{more})"


def _adapter_names(text: str) -> Iterator[str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict) and isinstance(name := entry.get("name"), str):
            yield _printable(f"{name} at {entry.get('strength')}")
