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
from app.library.pictures import WORK_BYTES, PictureChoices
from app.net.hub import Piece, Source
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

_SEEING_GB = 8  # of memory, from which on models that see are preferred

_log = logging.getLogger(__name__)
_Plans = tuple[frozenset[str], dict[str, MemoryPlan], dict[str, MemoryPlan]]
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
        choices: PictureChoices,
        sees: Callable[[Path, Sequence[Piece]], bool],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._choices, self._sees = choices, sees
        self._library, self._worker = library, worker
        self._here, self._coming, self._reclaimable = here, coming, reclaimable
        self._models: tuple[CatalogModel, ...] = ()
        self._embedders: tuple[CatalogEmbedder, ...] = ()
        self._plans: dict[str, MemoryPlan] = {}
        self._both: dict[str, MemoryPlan] = {}  # of a model with its picture encoder
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

        def plans() -> _Plans:
            architectures = supported_architectures()
            run = [model for model in models if not catalog.problem(model, RUNS, architectures)]
            alone = {
                model.id: predict_memory(model.shape, reclaimable=reclaimable) for model in run
            }
            both = {
                model.id: predict_memory(
                    replace(model.shape, encoder_bytes=model.encoder_bytes + WORK_BYTES),
                    reclaimable=reclaimable,
                )
                for model in run
                if model.encoder
            }
            return architectures, alone, both

        def predicted(found: _Plans) -> None:
            self._architectures, self._plans, self._both = found
            self.refresh()

        self._worker.run(plans, predicted)

    def refresh(self) -> None:
        """Rebuild the rows after installed files or downloads have changed."""
        rows = [self._row(model) for model in self._models]
        fitting = {model.id for model in self._models if self._fits(model)}
        seeing = {model.id for model in self._models if self._fits(model, with_encoder=True)}
        computer_gb = catalog.computer_of(self._computer_bytes)
        ordered = arranged(rows, fitting, seeing, computer_gb)
        self._library.set_catalog(ordered, self._computer_bytes)
        self._library.set_embedders(
            [EmbedderRow(model, self._offer(model)) for model in self._embedders]
        )

    def _fits(self, model: CatalogModel, *, with_encoder: bool = False) -> bool:
        """Whether it fits in the memory: predicted or, before that takes its seconds, estimated."""
        if with_encoder and not model.encoder:
            return False
        plans = self._both if with_encoder else self._plans
        if model.id in plans:
            return plans[model.id].fits
        needed = model.size_bytes * _OVERHEAD + _SPARE_BYTES
        needed += model.encoder_bytes + WORK_BYTES if with_encoder else 0
        unknown = self._architectures is None and model.size_bytes > 0
        return unknown and needed <= self._available

    def _row(self, model: CatalogModel) -> CatalogRow:
        memory, both = (_memory(plans.get(model.id)) for plans in (self._plans, self._both))
        offer = replace(self._offer(model), problem=self._problem(model), memory=memory)
        if model.encoder:
            encoder = Piece(model.encoder, model.encoder_bytes)
            sees = offer.here is not None and self._sees(offer.here, (encoder,))
            offer = replace(self._choices.applied_to_one(offer, encoder, both), sees=sees)
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
    rows: Sequence[CatalogRow], fitting: Collection[str], seeing: Collection[str], computer_gb: int
) -> list[CatalogRow]:
    """The rows by size of computer: the one for this computer, others of its size, smaller, larger.

    That one is the choice for computers of this size or, if it cannot run or its memory is in use,
    for the next smaller size. From `_SEEING_GB` on models that see pictures come before others.
    `fitting` are the ids of the models that fit in the memory now, `seeing` those that fit with
    their picture encoders.
    """
    choices = [
        row.model
        for row in rows
        if row.model.choice and row.model.memory_gb <= computer_gb and row.model.id in fitting
    ]

    def rank(model: CatalogModel) -> tuple[int, bool]:
        return model.memory_gb, model.memory_gb >= _SEEING_GB and model.id in seeing

    best = max(choices, key=rank).id if choices else ""

    def place(row: CatalogRow) -> tuple[bool, bool, int, bool]:
        needed = row.model.memory_gb
        larger, is_blind = needed > computer_gb, needed >= _SEEING_GB and not row.model.encoder
        return row.model.id != best, larger, needed if larger else -needed, is_blind

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


def _memory(plan: MemoryPlan | None) -> Memory | None:
    if plan is None:
        return None
    return Memory(
        plan.total_bytes,
        plan.available_bytes,
        plan.context,
        plan.weights_bytes,
        plan.cache_bytes,
        plan.scratch_bytes,
        encoder_bytes=plan.encoder_bytes,
    )
