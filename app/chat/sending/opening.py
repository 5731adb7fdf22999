"""Files given to the app by "Open with", a drop or a paste, judged by their content.

Models are opened, chats imported, presets and character cards offered, and others attached to the
shown chat. A file of chats that is given together with files to attach is attached, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

from app.chat.settings.preset_files import (
    FoundPreset,
    PresetFileError,
    is_png,
    may_be_preset,
    read_preset,
)
from app.state.chat import Notice, State
from app.system.translation import sentences, trn
from app.system.worker import BackgroundWorker

NOTICE = "paste"  # kind of the notice about files that cannot be used
_MAGIC = b"GGUF"


class Kind(Enum):
    """What a file is."""

    MODEL = "model"
    CHATS = "chats"
    OTHER = "other"


class Opening:
    """Gives each file to what uses it, and says what cannot be used."""

    def __init__(
        self,
        state: State,
        files: BackgroundWorker,
        load: Callable[[Path], None],
        link: Callable[[Sequence[Path]], None],
        preview: Callable[[Sequence[Path]], None],
        offer: Callable[[Sequence[FoundPreset]], None],
        attach: Callable[[Sequence[Path]], None],
    ) -> None:
        """`files` is the worker for the user's files; `link` adds models to the list.

        `preview` shows what files of chats contain, `offer` asks whether to add presets, `attach`
        attaches files to the shown chat.
        """
        self._state, self._files = state, files
        self._load, self._link, self._preview, self._offer = load, link, preview, offer
        self._attach = attach

    def open(self, paths: Sequence[Path], *, load: bool = True) -> None:
        """Open files; without `load` another model is opened already, and all are only listed."""
        self.forget()
        if all(map(_is_named_model, paths)):
            self._open(paths, load=load)
            return

        def opened(found: list[Kind | FoundPreset | str]) -> None:
            def of(*kinds: Kind) -> list[Path]:
                return [path for path, each in zip(paths, found, strict=True) if each in kinds]

            if Kind.OTHER in found:
                self._attach(of(Kind.OTHER, Kind.CHATS))
            elif chats := of(Kind.CHATS):
                self._preview(chats)
            self._open(of(Kind.MODEL), load=load)
            if presets := [each for each in found if isinstance(each, FoundPreset)]:
                self._offer(presets)
            refused = [each for each in found if isinstance(each, str)]
            if refused:
                self._state.set_notice(NOTICE, Notice(sentences(*refused)))

        self._files.run(lambda: [_judged(path) for path in paths], opened)

    def forget(self) -> None:
        """Hide the notice."""
        self._state.set_notice(NOTICE, None)

    def _open(self, models: Sequence[Path], *, load: bool) -> None:
        listed = models[1:] if load else models
        if load and models:
            self._load(models[0])
        if listed:
            self._link(listed)
            sentence = trn(
                "Only one model is in use at a time: the other one is in your list of models.",
                "Only one model is in use at a time: {count} others are in your list of models.",
                len(listed),
            )
            self._state.set_notice(NOTICE, Notice(sentence))


def _judged(path: Path) -> Kind | FoundPreset | str:
    """What a file is by its content; a text says why a preset cannot be used."""
    if not path.is_dir() and not path.is_file():
        return Kind.OTHER  # attaching it says why
    if is_model(path):
        return Kind.MODEL
    from app.chat.transfer.sources import has_chats

    try:
        if found := read_preset(path) if may_be_preset(path) else None:
            return found
    except PresetFileError as error:
        if is_png(path):
            return str(error)
    return Kind.CHATS if has_chats(path) else Kind.OTHER


def is_model(path: Path) -> bool:
    """Whether a file is a model by its name or its first bytes."""
    if _is_named_model(path) or path.is_dir():
        return not path.is_dir()
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _is_named_model(path: Path) -> bool:
    return path.suffix.lower() == ".gguf"
