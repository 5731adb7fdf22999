"""Files given to the app by "Open with", a drop or a paste, judged by their content.

Models are opened, chats imported, presets and character cards offered, and others explained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

from app.chat.preset_files import FoundPreset, PresetFileError, may_be_preset, read_preset
from app.state.chat import Notice, State
from app.system.translation import sentences, tr, trn
from app.system.worker import BackgroundWorker

NOTICE = "paste"  # kind of the notice about files that cannot be used
_MAGIC = b"GGUF"


class Kind(Enum):
    """What a file is."""

    MODEL = "model"
    CHATS = "chats"
    OTHER = "other"


class Opening:
    """Opens the first model, lists the other ones, and says what cannot be used."""

    def __init__(
        self,
        state: State,
        files: BackgroundWorker,
        load: Callable[[Path], None],
        link: Callable[[Sequence[Path]], None],
        preview: Callable[[Sequence[Path]], None],
        offer: Callable[[Sequence[FoundPreset]], None],
    ) -> None:
        """`files` is the worker for the user's files; `link` adds models to the list.

        `preview` shows what files of chats contain, `offer` asks whether to add presets.
        """
        self._state, self._files = state, files
        self._load, self._link, self._preview, self._offer = load, link, preview, offer

    def open(self, paths: Sequence[Path], *, load: bool = True) -> None:
        """Open files; without `load` another model is opened already, and all are only listed."""
        named = [path for path in paths if _is_named_model(path)]
        if len(named) == len(paths):
            self._open(named, [], load=load)
            return

        def opened(found: list[Kind | FoundPreset | str]) -> None:
            def of(kind: Kind) -> list[Path]:
                return [path for path, each in zip(paths, found, strict=True) if each is kind]

            if chats := of(Kind.CHATS):
                self._preview(chats)
            self._open(of(Kind.MODEL), of(Kind.OTHER), load=load)
            if presets := [each for each in found if isinstance(each, FoundPreset)]:
                self._offer(presets)
            if refused := [each for each in found if isinstance(each, str)]:
                self._state.set_notice(NOTICE, Notice(sentences(*refused)))

        self._files.run(lambda: [_judged(path) for path in paths], opened)

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


def _judged(path: Path) -> Kind | FoundPreset | str:
    """What a file is by its content; a text says why a preset cannot be used."""
    if is_model(path):
        return Kind.MODEL
    from app.chat.transfer.sources import may_have_chats

    chats = Kind.CHATS if path.is_dir() or may_have_chats(path) else Kind.OTHER
    try:
        return (read_preset(path) if may_be_preset(path) else None) or chats
    except PresetFileError as error:
        return str(error) if chats is Kind.OTHER else chats  # a damaged or large file of chats


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
