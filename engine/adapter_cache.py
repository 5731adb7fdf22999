"""Adapters of a loaded model: the current stack, and files that were read lately.

Adapters of the stack stay in memory, and so do the last few removed from it, so that switching one
back on is instant. A file that changed on disk is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.adapters import peft as lora_peft
from engine.adapters import stack as lora
from engine.adapters.stack import NO_ADAPTERS, Adapter, BaseModel, Stack
from engine.errors import AdapterError, ModelFileError
from engine.loading import identity
from engine.loading.identity import Stamp
from engine.messages import AdapterInfo, AdapterUse

Checkpoint = Callable[[], None]
_SPARE = 4  # kept in memory though no longer in the stack


@dataclass(frozen=True, slots=True)
class _Cached:
    """An adapter in memory, with the stamps of its files from before they were read."""

    adapter: Adapter
    files: tuple[Stamp, ...]


class AdapterCache:
    """The adapters of one model; used by the engine thread only."""

    def __init__(self, base: BaseModel) -> None:
        self._base = base
        self._cached: dict[Path, _Cached] = {}  # least recently used first
        self.stack: Stack = NO_ADAPTERS  # the current one
        self.uses: tuple[AdapterUse, ...] = ()  # the adapters of it

    @property
    def size_bytes(self) -> int:
        """Memory of all adapters."""
        return sum(one.adapter.size_bytes for one in self._cached.values())

    @property
    def paths(self) -> dict[str, Path]:
        """The files of the adapters in memory, by their hash."""
        return {one.adapter.sha256: path for path, one in self._cached.items()}

    def set(self, uses: Sequence[AdapterUse], checkpoint: Checkpoint) -> bool:
        """Make these the current stack; on any error it stays unchanged. Returns if it changed."""
        stack, loaded = self._load(uses, checkpoint)
        changed = stack.key != self.stack.key
        self.stack, self.uses = stack, tuple(uses)
        self._keep(loaded)
        return changed

    def stack_of(self, uses: Sequence[AdapterUse] | None, checkpoint: Checkpoint) -> Stack:
        """The stack of these adapters, which stay in memory for a while; None: the current one."""
        if uses is None:
            return self.stack
        stack, loaded = self._load(uses, checkpoint)
        current = {use.path: self._cached[use.path] for use in self.uses}
        self._keep(current | loaded)
        return stack

    def infos(self) -> tuple[AdapterInfo, ...]:
        """Facts about the adapters of the current stack."""
        entries = zip(self.uses, self.stack.entries, strict=True)
        return tuple(_info(use, adapter) for use, (adapter, _) in entries)

    def _load(
        self, uses: Sequence[AdapterUse], checkpoint: Checkpoint
    ) -> tuple[Stack, dict[Path, _Cached]]:
        """The stack of these adapters, and the adapters by path."""
        paths = dict.fromkeys(use.path for use in uses)
        loaded = {path: self._adapter(path, checkpoint) for path in paths}
        return Stack((loaded[use.path].adapter, use.strength) for use in uses), loaded

    def _adapter(self, path: Path, checkpoint: Checkpoint) -> _Cached:
        """The adapter from memory if its files are unchanged, else from disk."""
        files = _files(path)
        known = self._cached.get(path)
        if known is not None and files and known.files == files:
            return known
        checkpoint()
        try:
            return _Cached(lora.load_adapter(path, self._base, checkpoint), files)
        except (AdapterError, ModelFileError) as error:
            if path.name in str(error):
                raise
            # The stack may have several adapters: name the faulty one.
            raise AdapterError(f"{path.name}: {error}", error.remedy, error.fault) from error

    def _keep(self, used: dict[Path, _Cached]) -> None:
        """Keep `used` as the most recent adapters; drop all but a few of the others."""
        spare = [path for path in self._cached if path not in used]
        for path in spare[: max(len(spare) - _SPARE, 0)]:
            del self._cached[path]
        for path in used:
            self._cached.pop(path, None)
        self._cached |= used


def _files(path: Path) -> tuple[Stamp, ...]:
    """The stamps of an adapter's files; empty if they cannot be read."""
    with suppress(OSError, AdapterError):
        folder = lora_peft.find_folder(path)
        return identity.stamps(
            [path] if folder is None else [folder / lora_peft.CONFIG, folder / lora_peft.TENSORS]
        )
    return ()


def _info(use: AdapterUse, adapter: Adapter) -> AdapterInfo:
    return AdapterInfo(
        path=use.path,
        name=adapter.name,
        sha256=adapter.sha256,
        kind=adapter.kind,
        rank=adapter.rank,
        targets=len(adapter.pairs),
        size_bytes=adapter.size_bytes,
        strength=use.strength,
    )
