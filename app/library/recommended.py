"""The recommended models: their rows, predicted memory, and whether they are installed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject

from app.downloads import catalog
from app.downloads.catalog import CatalogError, CatalogModel
from app.library.offers import RUNS
from app.net.hub import Source
from app.state.library import CatalogRow, LibraryState, Line, Memory, Offer
from app.system.translation import tr
from app.system.worker import BackgroundWorker
from engine import MemoryPlan, predict_memory

_log = logging.getLogger(__name__)


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
        self._plans: dict[str, MemoryPlan] = {}

    def start(self) -> None:
        """Read the catalog."""
        self._worker.run(_read, self._on_read)

    def _on_read(self, found: tuple[CatalogModel, ...] | CatalogError) -> None:
        if isinstance(found, CatalogError):
            _log.error("%s", found)
            text = tr("The list of recommended models is damaged.")
            self._library.set_line(Line(text, tr("Install Tokonoma again."), trouble=True))
            return
        self._models = found
        self.refresh()

    def predict(self) -> None:
        """Predict the memory of each model against the memory available now."""
        runnable = [model for model in self._models if not catalog.problem(model, RUNS)]
        reclaimable = self._reclaimable()

        def plans() -> dict[str, MemoryPlan]:
            return {
                model.id: predict_memory(model.shape, reclaimable=reclaimable) for model in runnable
            }

        def predicted(found: dict[str, MemoryPlan]) -> None:
            self._plans = found
            self.refresh()

        self._worker.run(plans, predicted)

    def refresh(self) -> None:
        """Rebuild the rows after installed files or downloads have changed."""
        self._library.set_catalog([self._row(model) for model in self._models])

    def _row(self, model: CatalogModel) -> CatalogRow:
        plan = self._plans.get(model.id)
        offer = Offer(
            model.source,
            model.name,
            model.layout,
            model.format,
            problem=catalog.problem(model, RUNS),
            memory=_memory(plan) if plan is not None else None,
            here=self._here(model.source),
            coming=self._coming(model.source),
        )
        return CatalogRow(model, offer)


def _read() -> tuple[CatalogModel, ...] | CatalogError:
    try:
        return catalog.load()
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
