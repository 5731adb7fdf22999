"""The desk: one loaded model, the session on it, its adapters, and the commands that need them.

The service makes one for each model it loads and drops it with the model. What a conversation is
read to lives in the session; before another conversation takes its place, nothing is saved
unasked: the window sends SaveSnapshot, since only it knows whose session it was.

Adapters stay in memory while the stack holds them, and the few that left it last, so that a switch
flips at once; all go with the model. A file that changed on the disk is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.chat.template import answer_prefix, prompt_ids
from engine.errors import AdapterError, ModelFileError
from engine.host.background import BackgroundTask
from engine.inference.generate import Answer
from engine.inference.prompt import reuse_cached_ids, shared_prefix
from engine.inference.session import Session
from engine.loading import identity
from engine.loading.identity import ModelFiles, Stamp
from engine.loading.library import data_folder, model_parts
from engine.loading.loader import LoadedModel
from engine.lora import peft as lora_peft
from engine.lora import stack as lora
from engine.lora.stack import Adapter, Stack
from engine.messages import (
    AdapterInfo,
    AdaptersSet,
    AdapterUse,
    Finished,
    FinishReason,
    Generate,
    LoadSnapshot,
    PromptProgress,
    Role,
    SaveSnapshot,
    SetAdapters,
    SnapshotLoaded,
    SnapshotSaved,
    Text,
)
from engine.models.recording import adapter_obstacles
from engine.snapshot import capture as snapshot
from engine.snapshot import store as snapshots
from engine.snapshot.restore import RestoreResult, SnapshotRestorer
from engine.snapshot.saver import Saver
from engine.snapshot.store import Snapshots
from engine.state.kv_cache import Cache

Checkpoint = Callable[[], None]
_SPARE_ADAPTERS = 4  # kept though no stack holds them
_MEASURED = 16  # tokens a pass must have for its speed to say something


@dataclass(frozen=True, slots=True)
class _Kept:
    """An adapter in memory, and its files as they were when it was read."""

    adapter: Adapter
    files: tuple[Stamp, ...]


class ModelHost:
    """A loaded model at work; used by the engine's thread only."""

    def __init__(
        self, model: LoadedModel, files: tuple[Stamp, ...], folder: Snapshots, saver: Saver
    ) -> None:
        """`files` are the stamps of the model's files from before they were read."""
        self.model = model
        self.session: Session = model.new_session()
        self._folder = folder
        self._saver = saver
        paths, memory = model_parts(model.path), data_folder() / "hashes.json"
        self._restorer = SnapshotRestorer(folder, ModelFiles(paths, files, memory), model.tokenizer)
        self._adapters: dict[Path, _Kept] = {}  # the one used last comes last
        self._uses: tuple[AdapterUse, ...] = ()
        self._recorded_alone = self.session.is_recorded  # as one program, without adapters
        self._speed = 0.0  # tokens read a second; 0: not measured yet
        # What is on the disk already: tokens, stack and file.
        self._saved: tuple[list[int], str, Path] | None = None

    @property
    def held_bytes(self) -> int:
        """What dropping the desk would give back."""
        kept = sum(kept.adapter.size_bytes for kept in self._adapters.values())
        return self.model.plan.weights_bytes + self.session.cache_bytes + kept

    # --- answering ------------------------------------------------------------------------------

    def generate(
        self, command: Generate, checkpoint: Checkpoint, cancelled: Callable[[], bool]
    ) -> Iterator[PromptProgress | Text | Finished]:
        """Answer a conversation, from the nearest of what is held and what was saved."""
        template = self.model.template
        continued = bool(command.turns) and command.turns[-1].role is Role.ASSISTANT
        write = template.render_continuation if continued else template.render
        text = write(command.turns, enable_thinking=command.thinking)
        fresh = self._ids(text, checkpoint)
        if len(fresh) < self.session.context:
            self._bring(fresh, "", checkpoint)
        answer = Answer(
            self.session,
            self.model.tokenizer,
            reuse_cached_ids(self.model.tokenizer, fresh, self.session.all_tokens),
            command.sampling,
            max_tokens=command.max_tokens,
            stop=(*command.stop, *template.stop),
            opening="" if continued else answer_prefix(text),
            request=command.request,
            cancelled=cancelled,
        )
        for event in answer.events():
            if isinstance(event, Finished):
                self._note_speed(event)
            yield event

    def _ids(self, text: str, checkpoint: Checkpoint) -> list[int]:
        # A pasted book takes seconds to cut into tokens.
        return BackgroundTask(lambda: prompt_ids(self.model.tokenizer, text), "prompt").result(
            checkpoint
        )

    def _note_speed(self, finished: Finished) -> None:
        read = finished.prompt_tokens - finished.reused_tokens
        whole = finished.generated_tokens or finished.reason is not FinishReason.CANCELLED
        if whole and read >= _MEASURED and finished.prefill_seconds > 0:
            self._speed = read / finished.prefill_seconds

    # --- adapters -------------------------------------------------------------------------------

    def set_adapters(self, command: SetAdapters, checkpoint: Checkpoint) -> AdaptersSet:
        """Make this the stack; on any error, and when cancelled, the one before stays."""
        paths = dict.fromkeys(use.path for use in command.adapters)
        kept = {path: self._adapter(path, checkpoint) for path in paths}
        stack = Stack((kept[use.path].adapter, use.strength) for use in command.adapters)
        changed = stack.key != self.session.stack.key
        forgotten = self.session.set_stack(stack)
        self._keep(kept)
        self._uses = command.adapters
        return self.adapters(command.request, changed=changed, forgotten=forgotten)

    def adapters(self, request: int, *, changed: bool = False, forgotten: int = 0) -> AdaptersSet:
        """The stack as it is."""
        entries = zip(self._uses, self.session.stack.entries, strict=True)
        infos = tuple(_described(use, adapter) for use, (adapter, _) in entries)
        slowed = self._recorded_alone and not self.session.is_recorded
        slow = adapter_obstacles(self.session.stack) if slowed else ()
        return AdaptersSet(request, infos, changed, forgotten, slow)

    def _adapter(self, path: Path, checkpoint: Checkpoint) -> _Kept:
        """From memory where the files are as they were, else from the disk."""
        files = _adapter_files(path)
        known = self._adapters.get(path)
        if known is not None and files and known.files == files:
            return known
        checkpoint()
        try:
            return _Kept(lora.load_adapter(path, self.model.decoder.base, checkpoint), files)
        except (AdapterError, ModelFileError) as error:
            if path.name in str(error):
                raise
            # One of several may be at fault, so it must be named.
            raise AdapterError(f"{path.name}: {error}", error.remedy) from error

    def _keep(self, used: dict[Path, _Kept]) -> None:
        spare = [path for path in self._adapters if path not in used]
        for path in spare[: max(len(spare) - _SPARE_ADAPTERS, 0)]:
            del self._adapters[path]
        for path in used:
            self._adapters.pop(path, None)
        self._adapters |= used

    # --- saved sessions -------------------------------------------------------------------------

    def load_snapshot(self, command: LoadSnapshot, checkpoint: Checkpoint) -> SnapshotLoaded:
        """Hold as much of a conversation as was saved of it, and say what is left to read."""
        started = time.perf_counter()
        text = self.model.template.render(command.turns, add_generation_prompt=False)
        fresh = self._ids(text, checkpoint)
        found = self._bring(fresh, command.conversation, checkpoint)
        seconds = time.perf_counter() - started
        held = self.session.all_tokens
        kept, followed = shared_prefix(self.model.tokenizer, fresh, held)
        ready, total = min(kept, len(self.session.tokens)), kept + len(fresh) - followed
        checkpoint()
        return SnapshotLoaded(
            command.request,
            found.tokens,
            ready,
            total,
            seconds,
            self._reading_seconds(total - ready),
            found.refused,
        )

    def save_snapshot(self, command: SaveSnapshot, checkpoint: Checkpoint) -> SnapshotSaved | None:
        """Have the session written as it is now; None: the event comes when that is done."""
        self._saver.wait(checkpoint)
        session = self.session
        if not session.tokens or self._is_saved():
            return SnapshotSaved(command.request, 0, 0, 0.0, 0)
        held, stack = session.all_tokens, session.stack.key
        snapshots.check_budget(snapshot.session_bytes(session), command.budget_bytes)

        def saved(path: Path) -> None:
            self._saved = held, stack, path

        self._saver.save(
            command.request,
            snapshot.capture(
                session,
                model=self.model.name,
                architecture=self.model.config.architecture,
                conversation=command.conversation,
            ),
            self._folder,
            identify=self._restorer.identify,
            budget_bytes=command.budget_bytes,
            saved=saved,
        )
        return None

    def _is_saved(self) -> bool:
        if self._saved is None:
            return False
        held, stack, path = self._saved
        return held == self.session.all_tokens and stack == self.session.stack.key and path.exists()

    def _bring(
        self, fresh: Sequence[int], conversation: str, checkpoint: Checkpoint
    ) -> RestoreResult:
        found = self._restorer.restore_best(self.session, fresh, conversation, checkpoint)
        if found.path is not None:
            self._saved = self.session.all_tokens, self.session.stack.key, found.path
        return found

    def _reading_seconds(self, tokens: int) -> float:
        """How long reading so many tokens will take; 0 for a few."""
        if tokens < _MEASURED:
            return 0.0
        if not self._speed:
            self._speed = _quick_speed(self.model)
        return tokens / self._speed


def _quick_speed(model: LoadedModel) -> float:
    """Tokens read a second, judged by one pass through one layer."""
    decoder, config = model.decoder, model.config
    one = replace(decoder, blocks=decoder.blocks[:1])
    tokens = torch.zeros(min(_MEASURED * 4, model.plan.context), dtype=torch.int64)
    cache = Cache(1, config.kv_heads, config.head_width, len(tokens), model.cache)
    started = time.perf_counter()
    with torch.inference_mode():
        one.hidden(tokens, cache)
    seconds = (time.perf_counter() - started) * len(decoder.blocks)
    return len(tokens) / max(seconds, 1e-6)


def _adapter_files(path: Path) -> tuple[Stamp, ...]:
    """The stamps of an adapter's files; none where they cannot be told."""
    with suppress(OSError, AdapterError):
        folder = lora_peft.find_folder(path)
        return identity.stamps(
            [path] if folder is None else [folder / lora_peft.CONFIG, folder / lora_peft.TENSORS]
        )
    return ()


def _described(use: AdapterUse, adapter: Adapter) -> AdapterInfo:
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
