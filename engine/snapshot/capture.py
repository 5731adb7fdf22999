"""A session to a file and back: continuing from the file equals never having stopped.

A snapshot holds the tokens, their keys and values exactly as the cache does, the logits after the
last token and the state of the random numbers. It names what these follow from, and is refused,
with the reason, where any of it differs.
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

from engine.errors import Cancelled, RequestError, SnapshotError
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
_MOST_NAMES, _MOST_LETTERS = 4, 64  # in a sentence
_TOKENS, _LOGITS, _RANDOM = "tokens", "logits", "random"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session at one moment, to be written once or released, while the session goes on.

    Keys and values are not copied: a lease on the cache keeps them as they are until then.
    """

    metadata: Mapping[str, str]  # all but which model file it was
    layout: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]  # of keys and values
    cache: CacheLease
    tensors: Mapping[str, Tensor]  # everything else, copied

    @property
    def tokens(self) -> int:
        """How many tokens are held, with the one that is chosen and not read."""
        return len(self.tensors[_TOKENS])

    @property
    def token_bytes(self) -> bytes:
        """The ids as the file has them: i32, least byte first."""
        return bytes(_bytes(self.tensors[_TOKENS]))

    def release(self) -> None:
        """Let the session have its cache for itself again."""
        self.cache.release()


def session_bytes(session: Session) -> int:
    """What a snapshot of the session would take, but for some kilobytes."""
    layout = session.cache.layout(len(session.tokens)).values()
    return sum(dtype.itemsize * shape[0] * shape[1] * shape[2] for dtype, shape in layout)


def capture(session: Session, *, model: str, architecture: str, conversation: str = "") -> Snapshot:
    """What the session holds, at least one token; `model` and `conversation` are names for people and senders."""
    length = len(session.tokens)
    assert length, "an empty session was to be saved"
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
        "tokens": str(length),  # read; one more may be chosen
        "conversation": conversation,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Snapshot(metadata, session.cache.layout(length), session.cache.lease(), tensors)


def write(snapshot: Snapshot, path: Path, model_sha256: str) -> int:
    """Write a snapshot, completely or not at all, and release it; returns the file's bytes.

    Raises OSError.
    """
    parts = (part for layer in snapshot.cache.layers() for part in layer)
    small = [
        Data(name, _TYPES[tensor.dtype], tuple(tensor.shape), (_bytes(tensor),))
        for name, tensor in snapshot.tensors.items()
    ]
    held = [
        Data(name, _TYPES[dtype], shape, _next_rows(parts))
        for name, (dtype, shape) in snapshot.layout.items()
    ]
    metadata = {"model_sha256": model_sha256, **snapshot.metadata}
    try:
        return snapshot_file.write(path, metadata, [*small[:1], *held, *small[1:]])
    finally:
        snapshot.release()


def _next_rows(parts: Iterator[Tensor]) -> Iterator[memoryview]:
    """The memory of the next of `parts` [K, T, width], head by head: one head's is contiguous."""
    yield from map(_bytes, next(parts))


def restore(
    path: Path,
    session: Session,
    model_sha256: str,
    checkpoint: Callable[[], None] = lambda: None,
) -> None:
    """Make the session hold what the file does.

    Raises SnapshotError when the file is damaged or does not belong to this model, these adapters
    and this type of cache, and what `checkpoint` raises: the session is then as it was, or empty
    where the context has no room for both.
    """
    try:
        with path.open("rb") as file, path.open("rb") as again:
            if not os.path.samestat(os.fstat(file.fileno()), os.fstat(again.fileno())):
                raise Damaged  # replaced this very moment
            header = snapshot_file.read_header(file)
            # Hashing takes as long as reading, so one core does each.
            ended = threading.Event()
            whole = BackgroundTask(
                lambda: snapshot_file.verify(again, header, _until(ended)), "verify"
            )
            try:
                snapshot_file.check_version(header.metadata)
                check_origin(header.metadata, session, model_sha256)
                restored = _Restored(file, header, session)
                restored.read(checkpoint)
                whole.result(checkpoint)
                restored.load()
            except SnapshotError:
                whole.result(checkpoint)  # damage says more than what it led to
                raise
            finally:
                ended.set()
                whole.wait()
    except OSError as error:
        raise SnapshotError(
            f"The saved session cannot be read: {error.strerror or error}.", REPROCESS
        ) from error


def _until(ended: threading.Event) -> Callable[[], None]:
    """A checkpoint that gives up once `ended` is set."""

    def checkpoint() -> None:
        if ended.is_set():
            raise Cancelled

    return checkpoint


def check_origin(metadata: Mapping[str, str], session: Session, model_sha256: str) -> None:
    """Raise SnapshotError for a snapshot of another model, other adapters or another cache."""
    if metadata.get("model_sha256") != model_sha256:
        name = _plain(metadata.get("model", ""))
        raise SnapshotError(
            f"The session was saved with another model{f', {name}' if name else ''}.",
            "Load that model, or read the conversation again.",
        )
    if metadata.get("stack") != session.stack.key:
        raise SnapshotError(
            f"The session was saved {_adapters_in_words(metadata)}.",
            "Set the adapters as they were, or read the conversation again.",
        )
    if metadata.get("cache") != session.cache.type.value:
        raise SnapshotError(
            f"The session was saved with a cache of type {_plain(metadata.get('cache', ''))}, and the model "
            f"is loaded with {session.cache.type.value}.",
            "Load the model with the other type of cache, or read the conversation again.",
        )
    tokens = _count(metadata.get("tokens", ""))
    if tokens > session.context:
        raise SnapshotError(
            f"The saved session holds {tokens:,} tokens, and the context only {session.context:,}.",
            "Load the model with a larger context, or read the conversation again.",
        )


class _Restored:
    """A file on its way into a session: what it says is checked, then read, and at last adopted."""

    def __init__(self, file: BinaryIO, header: Header, session: Session) -> None:
        self._file, self._header, self._session = file, header, session
        self._length = _count(header.metadata.get("tokens", ""))
        self._layout: dict[str, tuple[str, tuple[int, ...]]] = {
            name: (_TYPES[dtype], shape)
            for name, (dtype, shape) in session.cache.layout(self._length).items()
        }
        vocabulary = session.model.head.weight.shape[0]
        self._held = self._checked_tokens(vocabulary)
        self._check_entries(vocabulary)

    def read(self, checkpoint: Callable[[], None]) -> None:
        """Read everything into a cache of its own; what is small comes first."""
        self._logits = self._tensor(_LOGITS, torch.float32)
        self._drawn = self._sampler_state()
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
        """Make the session hold what was read; the bits are known to be sound by now."""
        self._session.load(self._cache, self._held, self._length, self._logits, self._drawn)

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
        """Raise SnapshotError unless there is exactly what must be, of exactly the right shape."""
        wanted = dict(self._layout)
        known = {_TOKENS, snapshot_file.DIGEST, _RANDOM}
        if _LOGITS in self._header.tensors:
            wanted[_LOGITS] = ("F32", (vocabulary,))
        for name, (dtype, shape) in wanted.items():
            entry = self._header.tensors.get(name)
            if entry is None or (entry.dtype, entry.shape) != (dtype, shape):
                raise Damaged
        if set(self._header.tensors) - known - set(wanted):
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
        """A small tensor [N]; the file is at least as long as what is allocated."""
        if entry.dtype != _TYPES[dtype] or len(entry.shape) != 1:
            raise Damaged
        tensor = torch.empty(entry.shape, dtype=dtype)
        snapshot_file.read_into(self._file, entry, [_bytes(tensor)])
        return tensor


def _bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor, to be read or filled."""
    return tensor.numpy().data.cast("B")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise Damaged
    return int(text)


def _sampling(text: str) -> Sampling:
    """Sampling as `capture` wrote it."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Damaged from None
    default = asdict(Sampling())
    if not isinstance(found, dict) or set(found) != {field.name for field in fields(Sampling)}:
        raise Damaged
    values = cast("dict[str, float]", found)
    for name, value in values.items():
        whole = type(default[name]) is int
        if type(value) is not int and (whole or type(value) is not float):
            raise Damaged
    return Sampling(**values)  # pyright: ignore[reportArgumentType]  # checked above


def _plain(text: str) -> str:
    """A text from a file as part of a sentence: short, and with nothing unprintable in it."""
    return "".join(letter for letter in text[:_MOST_LETTERS] if letter.isprintable())


def _adapters_in_words(metadata: Mapping[str, str]) -> str:
    names = list(_adapter_names(metadata.get("adapters", "")))
    if not metadata.get("stack") or not names:
        return "without adapters"
    more = ", ..." if len(names) > _MOST_NAMES else ""
    return f"with other adapters or strengths ({', '.join(names[:_MOST_NAMES])}{more})"


def _adapter_names(text: str) -> Iterator[str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict) and isinstance(name := entry.get("name"), str):
            yield _plain(f"{name} at {entry.get('strength')}")
