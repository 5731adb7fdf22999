"""One model's own settings: the card that shows them, what they would take of memory, their file."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.library.index import memory_of, tried
from app.settings import model_settings as model_defaults
from app.settings.model_settings import AS_IN_SETTINGS, ModelDefaults, applied, in_settings
from app.settings.table import Settings
from app.state.library import DefaultsView, LibraryState, Line
from app.system.json_file import JsonFileError
from app.system.worker import BackgroundWorker
from engine import DEFAULT_CACHE, ModelFacts, inspect_model, model_name


class Defaults(QObject):
    """Keeps `LibraryState.defaults` true while its card is open, and the file of all models' own."""

    changed = Signal(Path)  # this model has other settings now

    def __init__(
        self,
        library: LibraryState,
        work: BackgroundWorker,
        file: Path,
        settings: Settings,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._library, self._work, self._file = library, work, file
        self.settings = settings
        self.reclaimable = 0
        self._predicting = False
        self._again = False  # the values changed while a prediction was made

    @cached_property
    def _of(self) -> dict[Path, ModelDefaults]:
        """All that is set, read when it is first wanted: the first load must know it.

        Reading it here takes a tenth of a millisecond. On the thread of `Work` it came too late for
        the model of the last time, which is loaded as soon as the window is there.
        """
        return model_defaults.load(self._file)

    def own(self, path: Path) -> ModelDefaults:
        """What is set for a model alone."""
        return self._of.get(path, AS_IN_SETTINGS)

    def has_own(self, path: Path) -> bool:
        """Whether anything is set for a model alone."""
        return path in self._of

    def whole(self, path: Path) -> ModelDefaults:
        """What holds for a model, every value set."""
        return in_settings(self.settings_for(path), self.own(path).cache)

    def settings_for(self, path: Path | None) -> Settings:
        """The settings as they hold for a model, its own ones in the place of those of all."""
        return applied(self.settings, self.own(path)) if path is not None else self.settings

    def show(self, path: Path) -> None:
        """Open the card of a model."""
        view = DefaultsView(path, model_name(path), self.own(path), in_settings(self.settings))
        self._library.set_defaults(view)
        self._predict()

    def close(self) -> None:
        """The card was closed."""
        self._library.set_defaults(None)

    def change(self, path: Path, values: ModelDefaults) -> None:
        """Keep other values for a model, and say what they would take."""
        if values == self.own(path):
            return
        if values == AS_IN_SETTINGS:
            self._of.pop(path, None)
        else:
            self._of[path] = values
        view = self._library.defaults
        if view is not None and view.path == path:
            self._library.set_defaults(replace(view, values=values))
            self._predict()
        file, kept = self._file, dict(self._of)
        self._work.run(lambda: tried(lambda: model_defaults.save(file, kept)), self._on_saved)
        self.changed.emit(path)

    def _predict(self) -> None:
        """Find out what the values shown would take; of many changes only the last counts."""
        view = self._library.defaults
        if view is None or self._predicting:
            self._again = view is not None
            return
        self._predicting, self._again = True, False
        path, reclaimable = view.path, self.reclaimable
        context = view.settings.context if view.values.context is None else view.values.context
        cache = view.values.cache or view.settings.cache or DEFAULT_CACHE
        self._work.run(
            lambda: inspect_model(path, context or 0, cache, reclaimable=reclaimable),
            lambda facts: self._predicted(path, facts),
        )

    def _predicted(self, path: Path, facts: ModelFacts) -> None:
        self._predicting = False
        view = self._library.defaults
        if view is not None and view.path == path:
            self._library.set_defaults(
                replace(
                    view,
                    name=facts.name or view.name,
                    context_model=facts.context_model,
                    memory=memory_of(facts),
                    problem=f"{facts.problem} {facts.remedy}".strip(),
                )
            )
        if self._again:
            self._predict()

    def _on_saved(self, error: JsonFileError | None) -> None:
        if error is not None:
            self._library.set_line(Line(str(error), error.remedy, trouble=True))
