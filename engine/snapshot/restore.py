"""Bringing a session back: which saved one spares a prompt the most reading, and why one was refused.

Any file of the same model, adapters and type of cache will do, whosever it is: a copied or branched
conversation goes on from the file of the one it came from.
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
# Fewer tokens are read sooner than the file of another conversation.
_WORTHWHILE = 16


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What a search came to."""

    tokens: int = 0  # of the prompt, read from a file now
    path: Path | None = None  # the file
    refused: str = ""  # one sentence: why what was saved of the conversation was of no use


class SnapshotRestorer:
    """Searches the saved sessions for those of one loaded model."""

    def __init__(self, folder: Snapshots, files: ModelFiles, tokenizer: Tokenizer) -> None:
        self._folder = folder
        self._files = files
        self._tokenizer = tokenizer

    def identify(self, checkpoint: Checkpoint = lambda: None) -> str:
        """The hash of the loaded model, computed when it is first needed.

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
        """Have the session hold as much as can be had of a prompt that is tokenized as `fresh`.

        A file is read when it holds more of it than the session does; of another conversation
        than the named one, only when it holds a good deal more. "" names none.
        """
        spared = self._agreeing(fresh, session.all_tokens)
        if len(fresh) - spared < (1 if conversation else _WORTHWHILE):
            return RestoreResult()
        files = [
            saved
            for saved in self._folder.all()
            if self._may_help(saved, fresh, spared, conversation)
        ]
        own = [saved for saved in files if conversation and saved.belongs_to(conversation)]
        refusals: dict[Path, str] = {}
        usable = self._usable(files, session, refusals, checkpoint) if files else []
        found = self._restore(session, fresh, usable, own, refusals, checkpoint)
        useless = [saved for saved in own if saved.path in refusals]
        if len(useless) < len(own) or not own:
            return found  # what was saved of the conversation is of use, or nothing was
        return replace(found, refused=self._reason(useless[0], refusals, checkpoint))

    def _may_help(self, saved: Saved, fresh: Sequence[int], spared: int, conversation: str) -> bool:
        """Whether a file is worth looking at: that hashes the model, which may take seconds."""
        if conversation and saved.belongs_to(conversation):
            return True
        return self._agreeing(fresh, saved.tokens) >= spared + _WORTHWHILE

    def _reason(self, saved: Saved, refusals: dict[Path, str], checkpoint: Checkpoint) -> str:
        """Why a file was refused; a damaged one may only look like another model's or version's."""
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
        refusals: dict[Path, str],
        checkpoint: Checkpoint,
    ) -> RestoreResult:
        """Read the best file that turns out sound; those that do not leave `usable`."""
        while found := best(usable, lambda held: self._agreeing(fresh, held)):
            saved, length = found
            more = length - self._agreeing(fresh, session.all_tokens)
            if more < (1 if saved in own else _WORTHWHILE):
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
        refusals: dict[Path, str],
        checkpoint: Checkpoint,
    ) -> list[Saved]:
        """The files of this model, stack and cache; `refusals` gets what speaks against others."""
        try:
            sha256 = BackgroundTask(lambda: self.identify(checkpoint), "identity").result(
                checkpoint
            )
        except SnapshotError as error:
            refusals |= {saved.path: str(error) for saved in files}
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
                refusals[saved.path] = str(error)
        return usable

    def _refuse(self, saved: Saved, error: SnapshotError, refusals: dict[Path, str]) -> None:
        """Note the reason; a file that is damaged helps nobody any more, so it goes."""
        log.info("%s: %s", saved.path.name, error)
        refusals[saved.path] = str(error)
        if isinstance(error, Damaged):
            self._folder.delete(saved)

    def _agreeing(self, fresh: Sequence[int], held: Sequence[int]) -> int:
        return shared_prefix(self._tokenizer, fresh, held)[0]
