"""The recommended models: their rows, predicted memory, and which one suits this computer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject

from app.downloads import catalog
from app.downloads.catalog import CatalogEmbedder, CatalogError, CatalogFile, CatalogModel
from app.library.offers import RUNS
from app.net.hub import Source
from app.state.library import CatalogRow, EmbedderRow, LibraryState, Line, Memory, Offer
from app.system.translation import tr
from app.system.worker import BackgroundWorker
from engine import (
    MemoryPlan,
    available_memory,
    predict_memory,
    supported_architectures,
    total_memory,
)

_OVERHEAD, _SPARE_BYTES = 1.2, 300_000_000  # by file size: an estimate until memory is predicted

_log = logging.getLogger(__name__)
_Lists = tuple[tuple[CatalogModel, ...], tuple[CatalogEmbedder, ...]]


class Recommendations(QObject):
    """Keeps `LibraryState.catalog` up to date."""

    def __init__(
        self,
        library: LibraryState,
        worker: BackgroundWorker,
        here: Callable[[Source], Path | None],
        coming: Callable[[Source], bool],
        reclaimable: Callable[[], int],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._library, self._worker = library, worker
        self._here, self._coming, self._reclaimable = here, coming, reclaimable
        self._models: tuple[CatalogModel, ...] = ()
        self._embedders: tuple[CatalogEmbedder, ...] = ()
        self._plans: dict[str, MemoryPlan] = {}
        self._architectures: frozenset[str] | None = None  # of the engine; None: not asked yet
        self._computer_bytes = total_memory()
        self._available = 0  # bytes of memory at the start

    def start(self) -> None:
        """Read the catalog."""
        self._available = available_memory()
        self._worker.run(_read, self._on_read)

    def _on_read(self, found: _Lists | CatalogError) -> None:
        if isinstance(found, CatalogError):
            _log.error("%s", found)
            text = tr("The list of recommended models is damaged.")
            self._library.set_line(Line(text, tr("Install Tokonoma again."), trouble=True))
            return
        self._models, self._embedders = found
        self.refresh()

    def predict(self) -> None:
        """Predict the memory of each model against the memory available now."""
        models, reclaimable = self._models, self._reclaimable()

        def plans() -> tuple[frozenset[str], dict[str, MemoryPlan]]:
            architectures = supported_architectures()
            return architectures, {
                model.id: predict_memory(model.shape, reclaimable=reclaimable)
                for model in models
                if not catalog.problem(model, RUNS, architectures)
            }

        def predicted(found: tuple[frozenset[str], dict[str, MemoryPlan]]) -> None:
            self._architectures, self._plans = found
            self.refresh()

        self._worker.run(plans, predicted)

    def refresh(self) -> None:
        """Rebuild the rows after installed files or downloads have changed."""
        rows = [self._row(model) for model in self._models]
        fitting = {model.id for model in self._models if self._fits(model)}
        computer_gb = catalog.computer_of(self._computer_bytes)
        self._library.set_catalog(arranged(rows, fitting, computer_gb), self._computer_bytes)
        self._library.set_embedders(
            [EmbedderRow(model, self._offer(model)) for model in self._embedders]
        )

    def _fits(self, model: CatalogModel) -> bool:
        """Whether it fits in the memory: predicted or, before that takes its seconds, estimated."""
        if model.id in self._plans:
            return self._plans[model.id].fits
        needed = model.size_bytes * _OVERHEAD + _SPARE_BYTES
        unknown = self._architectures is None and model.size_bytes > 0
        return unknown and needed <= self._available

    def _row(self, model: CatalogModel) -> CatalogRow:
        plan = self._plans.get(model.id)
        memory = _memory(plan) if plan is not None else None
        offer = replace(self._offer(model), problem=self._problem(model), memory=memory)
        return CatalogRow(model, offer)

    def _offer(self, model: CatalogFile) -> Offer:
        return Offer(
            model.source,
            model.name,
            model.layout,
            model.format,
            here=self._here(model.source),
            coming=self._coming(model.source),
        )

    def _problem(self, model: CatalogModel) -> str:
        known = self._architectures
        return catalog.problem(model, RUNS, {model.architecture} if known is None else known)


def arranged(
    rows: Sequence[CatalogRow], fitting: Collection[str], computer_gb: int
) -> list[CatalogRow]:
    """The rows by size of computer: the one for this computer, others of its size, smaller, larger.

    That one is the choice for computers of this size or, if it cannot run or its memory is in use,
    for the next smaller size. `fitting` are the ids of the models that fit in the memory now.
    """
    choices = [
        row.model
        for row in rows
        if row.model.choice and row.model.memory_gb <= computer_gb and row.model.id in fitting
    ]
    best = max(choices, key=lambda model: model.memory_gb).id if choices else ""

    def place(row: CatalogRow) -> tuple[bool, bool, int]:
        needed = row.model.memory_gb
        larger = needed > computer_gb
        return row.model.id != best, larger, needed if larger else -needed

    shown = sorted(rows, key=place)
    return [
        replace(row, offer=replace(row.offer, recommended=True)) if row.model.id == best else row
        for row in shown
    ]


def _read() -> _Lists | CatalogError:
    try:
        return catalog.load(), catalog.load_embedders()
    except CatalogError as error:
        return error


def _memory(plan: MemoryPlan) -> Memory:
    return Memory(
        plan.total_bytes,
        plan.available_bytes,
        plan.context,
        plan.weights_bytes,
        plan.cache_bytes,
        plan.scratch_bytes,
    )
