"""ModelHost: runs commands against the loaded model, its session and its adapters.

The service creates one for each model it loads. The session caches one conversation; when another
replaces it, nothing is saved implicitly: the window sends SaveSnapshot, since only the window knows
which conversation the session belongs to.

Adapters of the stack stay in memory, and so do the last few removed from it, so that switching one
back on is instant. All are freed with the model. A file that changed on disk is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from engine.chat import context_window
from engine.chat.template import answer_prefix, prompt_ids, split_thoughts
from engine.errors import OTHER_FAULT, AdapterError, Fault, FaultKind, ModelFileError, PromptTooLong
from engine.host.background import BackgroundTask
from engine.inference.generate import Answer
from engine.inference.prompt import reuse_cached_ids, shared_prefix
from engine.inference.session import Session
from engine.loading import identity
from engine.loading.identity import ModelFiles, Stamp
from engine.loading.library import data_folder, model_parts
from engine.loading.loader import LoadedModel
from engine.loading.measured import MeasuredFigures, measured_file
from engine.loading.prefill_estimator import PrefillEstimator
from engine.lora import peft as lora_peft
from engine.lora import stack as lora
from engine.lora.stack import Adapter, Stack
from engine.messages import (
    AdapterInfo,
    AdaptersSet,
    AdapterUse,
    ContextPolicy,
    CountTokens,
    Finished,
    Generate,
    LoadSnapshot,
    PromptProgress,
    Role,
    SaveSnapshot,
    SetAdapters,
    SnapshotLoaded,
    SnapshotSaved,
    Text,
    TokensCounted,
    Turn,
)
from engine.snapshot import capture as snapshot
from engine.snapshot import store as snapshots
from engine.snapshot.restore import RestoreResult, SnapshotRestorer
from engine.snapshot.saver import Saver
from engine.snapshot.store import Snapshots

Checkpoint = Callable[[], None]
_SPARE_ADAPTERS = 4  # kept in memory though no longer in the stack


@dataclass(frozen=True, slots=True)
class _CachedAdapter:
    """An adapter in memory, with the stamps of its files from before they were read."""

    adapter: Adapter
    files: tuple[Stamp, ...]


class ModelHost:
    """Runs commands against the loaded model; used by the engine thread only."""

    def __init__(
        self, model: LoadedModel, files: tuple[Stamp, ...], folder: Snapshots, saver: Saver
    ) -> None:
        """`files` are the stamps of the model's files, taken before they were read."""
        self.model = model
        self.session: Session = model.new_session()
        self._folder = folder
        self._saver = saver
        paths, memory = model_parts(model.path), data_folder() / "hashes.json"
        self._restorer = SnapshotRestorer(folder, ModelFiles(paths, files, memory), model.tokenizer)
        self._adapters: dict[Path, _CachedAdapter] = {}  # least recently used first
        self._uses: tuple[AdapterUse, ...] = ()
        self._prefill = PrefillEstimator(model, files, MeasuredFigures(measured_file()))
        # Tokens, adapter stack key and file of the last snapshot.
        self._saved: tuple[list[int], str, Path] | None = None

    @property
    def memory_bytes(self) -> int:
        """Memory that unloading frees: weights, KV cache and adapters."""
        adapters = sum(cached.adapter.size_bytes for cached in self._adapters.values())
        return self.model.plan.weights_bytes + self.session.cache_bytes + adapters

    # --- answering ------------------------------------------------------------------------------

    def generate(
        self, command: Generate, checkpoint: Checkpoint, cancelled: Callable[[], bool]
    ) -> Iterator[PromptProgress | Text | Finished]:
        """Generate an answer, reusing the longest cached or saved prefix of the conversation."""
        template = self.model.template
        continued = bool(command.turns) and command.turns[-1].role is Role.ASSISTANT
        write = template.render_continuation if continued else template.render
        render = partial(write, enable_thinking=command.thinking)
        text, fresh, dropped = self._prompt(command.turns, command.policy, render, checkpoint)
        if len(fresh) < self.session.context:
            self._restore_best(fresh, "", checkpoint)
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
        timer = self._prefill.timer(self.session)
        for event in answer.events():
            if isinstance(event, PromptProgress):
                timer.on_progress(event.done_tokens, event.total_tokens)
                yield replace(event, dropped_turns=dropped)
            else:
                yield event
        self._prefill.learn(self.session, timer)

    def _prompt(
        self,
        turns: Sequence[Turn],
        policy: ContextPolicy,
        render: Callable[[Sequence[Turn]], str],
        checkpoint: Checkpoint,
    ) -> tuple[str, list[int], int]:
        """Text and ids of the prompt, and how many old turns were left out so that it fits."""
        context = self.session.context
        text = render(turns)
        ids = self._ids(text, checkpoint)
        if policy is ContextPolicy.STOP or context_window.fits(len(ids), context):
            return text, ids, 0
        omits = self.model.template.omits_thoughts
        # A continued answer is in the prompt with its reasoning, whatever the template does.
        read = [split_thoughts(turn)[1] if omits else turn.text for turn in turns[:-1]]
        lengths = [len(self._ids(words, checkpoint)) for words in (*read, turns[-1].text)]
        markup = -(-max(len(ids) - sum(lengths), 0) // len(turns))
        dropped = context_window.dropped_turns(turns, [n + markup for n in lengths], context)
        while True:
            kept = context_window.without(turns, dropped)
            text = render(kept)
            ids = self._ids(text, checkpoint)
            more = context_window.next_start(turns, dropped)
            if len(ids) < context or more is None:
                break
            dropped = more
        if len(ids) >= context:
            raise PromptTooLong(
                f"This message is too long: with the instructions it has {len(ids):,} tokens, and "
                f"the model can take in {context:,}.",
                "Shorten it, or choose a longer context in the model's settings.",
                Fault(FaultKind.MESSAGE_TOO_LONG, context=len(ids), most_context=context),
            )
        return text, ids, dropped

    def _ids(self, text: str, checkpoint: Checkpoint) -> list[int]:
        # Tokenizing a very long prompt takes seconds.
        return BackgroundTask(lambda: prompt_ids(self.model.tokenizer, text), "prompt").result(
            checkpoint
        )

    def count_tokens(self, command: CountTokens, checkpoint: Checkpoint) -> TokensCounted:
        """Count the tokens of a text."""
        tokenizer, text = self.model.tokenizer, command.text
        task = BackgroundTask(lambda: len(tokenizer.encode(text, add_special=False)), "count")
        return TokensCounted(command.request, task.result(checkpoint))

    # --- adapters -------------------------------------------------------------------------------

    def set_adapters(self, command: SetAdapters, checkpoint: Checkpoint) -> AdaptersSet:
        """Replace the adapter stack; on any error, and when cancelled, it stays unchanged."""
        paths = dict.fromkeys(use.path for use in command.adapters)
        loaded = {path: self._adapter(path, checkpoint) for path in paths}
        stack = Stack((loaded[use.path].adapter, use.strength) for use in command.adapters)
        changed = stack.key != self.session.stack.key
        discarded = self.session.set_stack(stack)
        self._cache_adapters(loaded)
        self._uses = command.adapters
        return self.adapters(command.request, changed=changed, discarded=discarded)

    def adapters(self, request: int, *, changed: bool = False, discarded: int = 0) -> AdaptersSet:
        """The event that describes the current adapter stack."""
        entries = zip(self._uses, self.session.stack.entries, strict=True)
        infos = tuple(_adapter_info(use, adapter) for use, (adapter, _) in entries)
        return AdaptersSet(request, infos, changed, discarded)

    def _adapter(self, path: Path, checkpoint: Checkpoint) -> _CachedAdapter:
        """The adapter from memory if its files are unchanged, else from disk."""
        files = _adapter_files(path)
        known = self._adapters.get(path)
        if known is not None and files and known.files == files:
            return known
        checkpoint()
        try:
            return _CachedAdapter(
                lora.load_adapter(path, self.model.decoder.base, checkpoint), files
            )
        except (AdapterError, ModelFileError) as error:
            if path.name in str(error):
                raise
            # The stack may have several adapters: name the faulty one.
            raise AdapterError(f"{path.name}: {error}", error.remedy, error.fault) from error

    def _cache_adapters(self, used: dict[Path, _CachedAdapter]) -> None:
        """Keep `used` as the most recent adapters; drop all but a few of the others."""
        spare = [path for path in self._adapters if path not in used]
        for path in spare[: max(len(spare) - _SPARE_ADAPTERS, 0)]:
            del self._adapters[path]
        for path in used:
            self._adapters.pop(path, None)
        self._adapters |= used

    # --- saved sessions -------------------------------------------------------------------------

    def load_snapshot(self, command: LoadSnapshot, checkpoint: Checkpoint) -> SnapshotLoaded:
        """Restore the longest saved prefix of a conversation and estimate the remaining prefill."""
        started = time.perf_counter()
        render = partial(self.model.template.render, add_generation_prompt=False)
        _, fresh, dropped = self._prompt(command.turns, command.policy, render, checkpoint)
        found = self._restore_best(fresh, command.conversation, checkpoint)
        seconds = time.perf_counter() - started
        cached = self.session.all_tokens
        shared_cached, shared_fresh = shared_prefix(self.model.tokenizer, fresh, cached)
        ready = min(shared_cached, len(self.session.tokens))
        total = shared_cached + len(fresh) - shared_fresh
        checkpoint()
        return SnapshotLoaded(
            command.request,
            found.tokens,
            ready,
            total,
            seconds,
            self._prefill.seconds(self.session, ready, total, checkpoint)
            if total <= self.session.context
            else 0.0,
            str(found.refused or ""),
            dropped,
            found.refused.fault if found.refused else OTHER_FAULT,
        )

    def save_snapshot(self, command: SaveSnapshot, checkpoint: Checkpoint) -> SnapshotSaved | None:
        """Start writing the session to disk; None: the saver delivers the event when done."""
        self._saver.wait(checkpoint)
        session = self.session
        if not session.tokens or self._is_saved():
            return SnapshotSaved(command.request, 0, 0, 0.0, 0)
        tokens, stack = session.all_tokens, session.stack.key
        snapshots.check_budget(snapshot.session_bytes(session), command.budget_bytes)

        def saved(path: Path) -> None:
            self._saved = tokens, stack, path

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
        tokens, stack, path = self._saved
        same = tokens == self.session.all_tokens and stack == self.session.stack.key
        return same and path.exists()

    def _restore_best(
        self, fresh: Sequence[int], conversation: str, checkpoint: Checkpoint
    ) -> RestoreResult:
        found = self._restorer.restore_best(self.session, fresh, conversation, checkpoint)
        if found.path is not None:
            self._saved = self.session.all_tokens, self.session.stack.key, found.path
        return found


def _adapter_files(path: Path) -> tuple[Stamp, ...]:
    """The stamps of an adapter's files; empty if they cannot be read."""
    with suppress(OSError, AdapterError):
        folder = lora_peft.find_folder(path)
        return identity.stamps(
            [path] if folder is None else [folder / lora_peft.CONFIG, folder / lora_peft.TENSORS]
        )
    return ()


def _adapter_info(use: AdapterUse, adapter: Adapter) -> AdapterInfo:
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
