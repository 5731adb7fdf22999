"""SnapshotRestorer: finds and restores the snapshot with the longest shared prefix of a prompt.

A snapshot of any conversation is usable if model, adapters and cache type match: a copied or
branched conversation restores the snapshot of the original.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.errors import SnapshotError
from engine.host.background import BackgroundTask
from engine.inference.prompt import shared_prefix
from engine.inference.session import Session
from engine.loading.identity import ModelFiles
from engine.snapshot import capture as snapshot
from engine.snapshot import file as snapshot_file
from engine.snapshot.file import Damaged
from engine.snapshot.store import Saved, Snapshots, best
from engine.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

Checkpoint = Callable[[], None]
# Prefilling fewer tokens is faster than restoring another conversation's file.
_MIN_GAIN = 16  # tokens


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """Outcome of a search for a usable snapshot."""

    tokens: int = 0  # of the prompt, restored from the file
    path: Path | None = None  # of the restored file
    refused: SnapshotError | None = None  # why the conversation's own snapshot was unusable


class SnapshotRestorer:
    """Restores snapshots for one loaded model."""

    def __init__(self, folder: Snapshots, files: ModelFiles, tokenizer: Tokenizer) -> None:
        self._folder = folder
        self._files = files
        self._tokenizer = tokenizer

    def identify(self, checkpoint: Checkpoint = lambda: None) -> str:
        """SHA-256 of the loaded model, computed at first use.

        Raises SnapshotError when the model's files have changed since they were loaded.
        """
        if found := self._files.sha256(checkpoint):
            return found
        raise SnapshotError(
            "The model's file has changed since it was loaded.", "Load the model again."
        )

    def restore_best(
        self, session: Session, fresh: Sequence[int], conversation: str, checkpoint: Checkpoint
    ) -> RestoreResult:
        """Restore the snapshot with the longest prefix of a prompt tokenized as `fresh`.

        Only if that is longer than the prefix cached in the session; for a snapshot of another
        conversation than `conversation`, longer by `_MIN_GAIN` tokens. "" means no conversation.
        """
        cached = self._shared_length(fresh, session.all_tokens)
        if len(fresh) - cached < (1 if conversation else _MIN_GAIN):
            return RestoreResult()
        files = [
            saved
            for saved in self._folder.all()
            if self._is_candidate(saved, fresh, cached, conversation)
        ]
        own = [saved for saved in files if conversation and saved.belongs_to(conversation)]
        refusals: dict[Path, SnapshotError] = {}
        usable = self._usable(files, session, refusals, checkpoint) if files else []
        found = self._restore(session, fresh, usable, own, refusals, checkpoint)
        refused = [saved for saved in own if saved.path in refusals]
        if len(refused) < len(own) or not own:
            return found
        return replace(found, refused=self._reason(refused[0], refusals, checkpoint))

    def _is_candidate(
        self, saved: Saved, fresh: Sequence[int], cached: int, conversation: str
    ) -> bool:
        """Whether to consider a file: matching it hashes the model, which may take seconds."""
        if conversation and saved.belongs_to(conversation):
            return True
        return self._shared_length(fresh, saved.tokens) >= cached + _MIN_GAIN

    def _reason(
        self, saved: Saved, refusals: dict[Path, SnapshotError], checkpoint: Checkpoint
    ) -> SnapshotError:
        """Why a file was refused; verifies it, since damage can look like a mismatch."""
        try:
            if saved.path.exists():
                snapshot_file.verify_file(saved.path, checkpoint)
        except SnapshotError as error:
            self._refuse(saved, error, refusals)
        return refusals[saved.path]

    def _restore(
        self,
        session: Session,
        fresh: Sequence[int],
        usable: list[Saved],
        own: list[Saved],
        refusals: dict[Path, SnapshotError],
        checkpoint: Checkpoint,
    ) -> RestoreResult:
        """Restore the best valid file; files that fail are removed from `usable`."""
        while found := best(usable, lambda tokens: self._shared_length(fresh, tokens)):
            saved, length = found
            gain = length - self._shared_length(fresh, session.all_tokens)
            if gain < (1 if saved in own else _MIN_GAIN):
                break
            try:
                snapshot.restore(saved.path, session, self.identify(), checkpoint)
            except SnapshotError as error:
                usable.remove(saved)
                self._refuse(saved, error, refusals)
            else:
                self._folder.touch(saved)
                return RestoreResult(length, saved.path)
        return RestoreResult()

    def _usable(
        self,
        files: list[Saved],
        session: Session,
        refusals: dict[Path, SnapshotError],
        checkpoint: Checkpoint,
    ) -> list[Saved]:
        """The files that match model, stack and cache; adds the reason for others to `refusals`."""
        try:
            sha256 = BackgroundTask(lambda: self.identify(checkpoint), "identity").result(
                checkpoint
            )
        except SnapshotError as error:
            refusals |= {saved.path: error for saved in files}
            return []
        usable: list[Saved] = []
        for saved in files:
            try:
                if saved.fault is None:
                    snapshot.check_origin(saved.metadata, session, sha256)
                    usable.append(saved)
                else:
                    self._refuse(saved, saved.fault, refusals)
            except SnapshotError as error:
                refusals[saved.path] = error
        return usable

    def _refuse(
        self, saved: Saved, error: SnapshotError, refusals: dict[Path, SnapshotError]
    ) -> None:
        """Record the reason; a damaged file is deleted."""
        log.info("%s: %s", saved.path.name, error)
        refusals[saved.path] = error
        if isinstance(error, Damaged):
            self._folder.delete(saved)

    def _shared_length(self, fresh: Sequence[int], tokens: Sequence[int]) -> int:
        """How many of `tokens` spell a prefix of the prompt."""
        return shared_prefix(self._tokenizer, fresh, tokens)[0]
