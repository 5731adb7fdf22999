"""Files given to the app by "Open with", a drop or a paste: models are opened, chats imported.

Others are explained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from app.chat.transfer.sources import may_have_chats
from app.state.chat import Notice, State
from app.system.translation import tr, trn
from app.system.worker import BackgroundWorker

NOTICE = "paste"  # kind of the notice about files that cannot be used
_MAGIC = b"GGUF"


class Opening:
    """Opens the first model, lists the other ones, and says what cannot be used."""

    def __init__(
        self,
        state: State,
        files: BackgroundWorker,
        load: Callable[[Path], None],
        link: Callable[[Sequence[Path]], None],
        preview: Callable[[Sequence[Path]], None],
    ) -> None:
        """`files` is the worker for the user's files; `link` adds models to the list.

        `preview` shows what files of chats contain.
        """
        self._state, self._files = state, files
        self._load, self._link, self._preview = load, link, preview

    def open(self, paths: Sequence[Path], *, load: bool = True) -> None:
        """Open files; without `load` another model is opened already, and all are only listed."""
        named = [path for path in paths if _is_named_model(path)]
        if len(named) == len(paths):
            self._open(named, [], load=load)
            return

        def opened(found: tuple[list[Path], list[Path]]) -> None:
            models, chats = found
            if chats:
                self._preview(chats)
            rest = [path for path in paths if path not in models and path not in chats]
            self._open(models, rest, load=load)

        def look() -> tuple[list[Path], list[Path]]:
            models = [path for path in paths if is_model(path)]
            return models, [
                p for p in paths if p not in models and (p.is_dir() or may_have_chats(p))
            ]

        self._files.run(look, opened)

    def refuse(self, paths: Sequence[Path]) -> None:
        """Say why pasted files cannot be used; none: a picture was pasted."""
        if not paths:
            sentence = tr("Pictures cannot be used: this version reads text only.")
            self._state.set_notice(NOTICE, Notice(sentence))
        else:
            self._open([], paths, load=False)

    def forget(self) -> None:
        """Hide the notice."""
        self._state.set_notice(NOTICE, None)

    def _open(self, models: Sequence[Path], others: Sequence[Path], *, load: bool) -> None:
        listed = models[1:] if load else models
        if load and models:
            self._load(models[0])
        if listed:
            self._link(listed)
        if others:
            sentence = tr("Files cannot be attached: this version reads models (.gguf) and text.")
            remedy = tr("Open the file, and paste its text.")
            self._state.set_notice(NOTICE, Notice(sentence, remedy))
        elif listed:
            sentence = trn(
                "Only one model is in use at a time: the other one is in your list of models.",
                "Only one model is in use at a time: {count} others are in your list of models.",
                len(listed),
            )
            self._state.set_notice(NOTICE, Notice(sentence))


def is_model(path: Path) -> bool:
    """Whether a file is a model by its name or its first bytes; one that cannot be read may be."""
    if _is_named_model(path) or path.is_dir():
        return not path.is_dir()
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return True  # loading it says why


def _is_named_model(path: Path) -> bool:
    return path.suffix.lower() == ".gguf"
