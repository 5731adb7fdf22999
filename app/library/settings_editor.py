"""Per-model settings: the settings card, its memory prediction, and the settings file."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.library.index import memory_of, tried
from app.library.recommended_sampling import used_values, with_recommended
from app.settings import model_settings as model_defaults
from app.settings.model_settings import AS_IN_SETTINGS, ModelDefaults, applied, in_settings
from app.settings.table import SAMPLING, Settings
from app.settings.used_sampling import UsedValue
from app.state.faults import explain
from app.state.library import DefaultsView, LibraryState, Line
from app.system.json_file import JsonFileError
from app.system.worker import BackgroundWorker
from engine import DEFAULT_CACHE, ModelFacts, ModelLoaded, inspect_model, model_label


class ModelSettingsEditor(QObject):
    """Keeps `LibraryState.defaults` up to date while the card is open, and saves changes."""

    changed = Signal(Path)  # the settings of this model have changed

    def __init__(
        self,
        library: LibraryState,
        worker: BackgroundWorker,
        file: Path,
        settings: Settings,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._library, self._worker, self._file = library, worker, file
        self.settings = settings
        self.reclaimable = 0
        self._predicting = False
        self._outdated = False  # the values changed during a prediction
        # By files themselves, as far as known: values by the names of their settings.
        self._recommended: dict[Path, dict[str, float]] = {}

    @cached_property
    def _of(self) -> dict[Path, ModelDefaults]:
        """Settings of all models, read on first use.

        Reading takes 0.1 ms. On the worker thread it would finish too late: the last used model
        is loaded as soon as the window is shown.
        """
        return model_defaults.load(self._file)

    def own(self, path: Path) -> ModelDefaults:
        """The settings of a model alone."""
        return self._of.get(path, AS_IN_SETTINGS)

    def has_own(self, path: Path) -> bool:
        """Whether a model has settings for it alone."""
        return path in self._of

    def whole(self, path: Path) -> ModelDefaults:
        """The effective settings of a model, every value set."""
        return in_settings(self.settings_for(path), self.own(path).cache)

    def settings_for(self, path: Path | None) -> Settings:
        """The app's settings, its sampling recommended for the model, and the model's own above."""
        if path is None:
            return self.settings
        return applied(self._recommending(path), self.own(path))

    def used_sampling(self, path: Path) -> dict[str, UsedValue]:
        """The sampling values of a model by the names of their settings, and their origins."""
        own, recommended = self.own(path), self._recommended.get(path, {})
        values = {name: getattr(own, name, None) for name in SAMPLING}
        by_model = {name: value for name, value in values.items() if value is not None}
        return used_values(self.settings, path, recommended, by_model)

    def remember(self, path: Path, facts: ModelLoaded | ModelFacts) -> None:
        """Keep what a file itself recommends, once it was read."""
        if facts.sampling is not None:
            self._recommended[path] = {
                name: getattr(facts.sampling, name)
                for name in facts.sampling_fields
                if name in SAMPLING
            }

    def _recommending(self, path: Path) -> Settings:
        """The app's settings with the sampling recommended for a model."""
        return with_recommended(self.settings, path, self._recommended.get(path))

    def show(self, path: Path) -> None:
        """Show the settings card of a model."""
        view = DefaultsView(
            path,
            model_label(path),
            self.own(path),
            in_settings(self._recommending(path)),
            drafts=self._drafts_for(path),
        )
        self._library.set_defaults(view)
        self._predict()

    def close(self) -> None:
        """Hide the card."""
        self._library.set_defaults(None)

    def change(self, path: Path, values: ModelDefaults) -> None:
        """Change and save the settings of a model, and predict their memory."""
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
        self._worker.run(lambda: tried(lambda: model_defaults.save(file, kept)), self._on_saved)
        self.changed.emit(path)

    def _drafts_for(self, path: Path) -> tuple[tuple[Path, str], ...]:
        """Installed models of the same family that are at most half as large."""
        rows = {row.path: row for row in self._library.installed if not row.problem}
        model = rows.get(path)
        if model is None or not model.architecture:
            return ()
        found = [
            (row.path, f"{row.name} ({row.format})" if row.format else row.name)
            for row in rows.values()
            if row.architecture == model.architecture and 2 * row.size_bytes <= model.size_bytes
        ]
        return tuple(sorted(found, key=lambda one: one[1].casefold()))

    def _predict(self) -> None:
        """Predict the memory of the shown values; changes during a prediction start one more."""
        view = self._library.defaults
        if view is None or self._predicting:
            self._outdated = view is not None
            return
        self._predicting, self._outdated = True, False
        path, reclaimable = view.path, self.reclaimable
        context = view.settings.context if view.values.context is None else view.values.context
        cache = view.values.cache or view.settings.cache or DEFAULT_CACHE
        chosen = view.settings if view.values.memory_gb is None else view.values
        memory = chosen.memory_bytes
        device = (view.settings if view.values.runs_on is None else view.values).device
        self._worker.run(
            lambda: inspect_model(
                path,
                context or 0,
                cache,
                reclaimable=reclaimable,
                memory_bytes=memory,
                device=device,
            ),
            lambda facts: self._predicted(path, facts),
        )

    def _predicted(self, path: Path, facts: ModelFacts) -> None:
        self._predicting = False
        self.remember(path, facts)
        view = self._library.defaults
        if view is not None and view.path == path:
            self._library.set_defaults(
                replace(
                    view,
                    name=facts.name or view.name,
                    settings=in_settings(self._recommending(path)),
                    context_model=facts.context_model,
                    memory=memory_of(facts),
                    runs_on=facts.runs_on,
                    speedup=facts.speedup,
                    moved=facts.moved,
                    problem=explain(facts.fault, path.name, facts.problem, facts.remedy).text,
                )
            )
        if self._outdated:
            self._predict()

    def _on_saved(self, error: JsonFileError | None) -> None:
        if error is not None:
            self._library.set_line(Line(str(error), error.remedy, trouble=True))
