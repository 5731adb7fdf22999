"""Builds the rows of the models on this computer: what each is, whether it can be used, its menu."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.domain.model_ref import Local, local_path
from app.state.chat import ModelPhase, ModelStatus
from app.state.faults import Explanation, explain
from app.state.library import FileState, InstalledRow, Offer, Place
from app.system.byte_size import size
from app.system.translation import number, tr
from app.ui.library.row_values import Action, HeadingView, Meter, RowView, Verb, View
from app.ui.library.words import (
    add_pictures,
    exact_numbers,
    from_disk_words,
    joined,
    model_count,
    predicted,
)
from app.ui.widgets.units import load_progress
from engine import FaultKind, belonging

INSTALLED, GET = "installed", "get"  # keys of the headings of this section and of the catalog
_JUMP_THRESHOLD = 6  # with more installed models the heading links to the catalog further down


def on_this_machine(
    rows: Sequence[InstalledRow],
    model: ModelStatus,
    searched: bool,
    catalog: bool,
    detailed: Collection[Path] = (),
    embedder: Path | None = None,
    offers: Iterable[Offer] = (),
) -> Iterator[View]:
    """The section of installed models, or a note that there are none.

    A picture encoder that one model uses is shown in its row. `offers` are what can be downloaded,
    also of installed models: their picture encoders.
    """
    own = own_encoders(rows)
    inside = {encoder.path for encoder in own.values()}
    lacking = {each.here: each for each in offers if each.here and each.encoders and not each.sees}
    jump = (
        (Action(Verb.JUMP, tr("Get a model"), GET),)
        if len(rows) - len(inside) > _JUMP_THRESHOLD and catalog
        else ()
    )
    total = sum(row.size_bytes for row in rows)
    models = sum(not row.is_encoder for row in rows)
    detail = joined(model_count(models), size(total)) if rows else ""
    yield HeadingView(INSTALLED, tr("On this computer"), detail, jump)
    loaded = model.loaded.path if model.loaded is not None else None
    busy = (model.path, local_path(model.failed), loaded)
    for row in rows:
        if row.path in inside:
            continue
        about = model if row.path in busy else None
        yield InstalledView(
            row,
            about,
            row.path in detailed,
            embeds=row.path == embedder,
            encoder=own.get(row.path),
            lacking=lacking.get(row.path),
        )
    if not rows:
        yield RowView(
            "none",
            note=tr("No models yet. Get one below, or open a file you have.")
            if searched
            else tr("Looking for models…"),
            links=(Action(Verb.OPEN_FILE, tr("Open a file…")),) if searched else (),
        )


def own_encoders(rows: Sequence[InstalledRow]) -> dict[Path, InstalledRow]:
    """The picture encoders that belong to exactly one of the models, by the paths of the models.

    Before a model is inspected, the names of the two files tell.
    """
    folders: dict[Path, list[InstalledRow]] = {}
    encoders = [row for row in rows if row.is_encoder and row.state is not FileState.MISSING]
    found: dict[Path, InstalledRow] = {}
    if encoders:
        for row in rows:
            if row.may_chat:
                folders.setdefault(row.path.parent, []).append(row)
    for encoder in encoders:
        users = [row for row in folders.get(encoder.path.parent, ()) if _uses(row, encoder)]
        if len(users) == 1:
            found.setdefault(users[0].path, encoder)
    return found


def _uses(model: InstalledRow, encoder: InstalledRow) -> bool:
    if model.state is FileState.UNKNOWN:
        return belonging(encoder.path.name, model.path.name) >= 0
    return model.encoder == encoder.path


@dataclass(frozen=True, slots=True)
class InstalledView:
    """Deferred view of one installed model file: there may be hundreds, a dozen are visible."""

    row: InstalledRow
    model: ModelStatus | None  # set if this file is loaded, loading or failed to load
    detailed: bool = False
    embeds: bool = False  # documents are searched with it
    encoder: InstalledRow | None = None  # for pictures, which no other model uses
    lacking: Offer | None = None  # of the model, whose picture encoder is not here

    @property
    def key(self) -> str:
        """The key of the built row."""
        return f"file:{self.row.path}"

    def build(self) -> RowView:
        """The view of the row."""
        encoder, model = self.encoder, self.model
        row = (
            _idle_row(self.row, encoder) if model is None else _active_row(self.row, model, encoder)
        )
        if self.row.state is FileState.EMBEDS:
            row = self._with_use(row)
        return self._with_details(replace(row, menu=self._menu(row)))

    def _menu(self, row: RowView) -> tuple[Action, ...]:
        """The menu of the row, with what can be done for pictures."""
        if self.lacking is not None:
            known = self.lacking.encoders[0].size_bytes
            return Action(Verb.ADD_PICTURES, add_pictures(known), self.lacking), *row.menu
        encoder = self.encoder
        if encoder is None or encoder.place is Place.BUNDLED:
            return row.menu
        words = tr("Move its pictures file to trash ({size})", size=size(encoder.size_bytes))
        return *row.menu, Action(Verb.DELETE, words, encoder.path)

    def _with_use(self, row: RowView) -> RowView:
        """The row of a model for searching documents: that it is used, or how to use it."""
        if self.embeds:
            return replace(row, status=tr("In use"))
        return replace(row, action=Action(Verb.SEARCH_WITH, tr("Use"), self.row.path))

    def _with_details(self, row: RowView) -> RowView:
        """The row with the link that shows or hides the exact text of its problem."""
        shown = _explanation(self.row, self.model)
        if shown is None or not shown.detail or not row.note:
            return row
        words = tr("Hide details") if self.detailed else tr("Details")
        note = f"{row.note}\n{shown.detail}" if self.detailed else row.note
        return replace(row, note=note, links=(Action(Verb.DETAILS, words, self.row.path),))


def _idle_row(row: InstalledRow, encoder: InstalledRow | None) -> RowView:
    """The row of a file that is neither loaded nor being loaded."""
    note, tone = _problem(row, None)
    shared = _facts(row, encoder)
    if row.state is FileState.UNKNOWN:
        shared.append(tr("reading the file…"))
    return RowView(
        key=f"file:{row.path}",
        name=row.name,
        name_tip=str(row.path),
        detail=joined(*shared),
        detail_tip=_exact_details(row),
        note=note,
        note_tone=tone,
        meter=predicted(row.memory),
        action=Action(Verb.USE, tr("Use"), row.path) if row.state is FileState.GOOD else None,
        menu=_menu(row, encoder, in_use=False),
    )


def _active_row(row: InstalledRow, model: ModelStatus, encoder: InstalledRow | None) -> RowView:
    """The row of a file that is loaded, is being loaded or failed to load."""
    plain = _idle_row(row, encoder)
    if model.phase is ModelPhase.LOADING and row.path == model.path:
        share = model.done_bytes / model.total_bytes if model.total_bytes else 0.0
        return replace(
            plain,
            detail=joined(
                tr(
                    "loading, {progress}",
                    progress=load_progress(model.done_bytes, model.total_bytes),
                ),
                *_facts(row, encoder),
            ),
            progress=share,
            action=Action(
                Verb.CANCEL_LOAD, tr("Cancel"), name=tr("Cancel loading {name}", name=row.name)
            ),
        )
    if model.loaded is not None and model.loaded.path == row.path:
        return replace(
            plain,
            detail=joined(*_facts(row, encoder)),
            meter=_resident(row, model),
            action=None,
            status=tr("In use"),
            menu=_menu(row, encoder, in_use=True),
        )
    note, tone = _problem(row, model)
    return replace(plain, note=note, note_tone=tone)


def _facts(row: InstalledRow, encoder: InstalledRow | None) -> list[str]:
    sees = tr("sees pictures") if row.sees and encoder is None else ""
    amount = size(row.size_bytes) if row.size_bytes else ""
    if encoder is not None and amount:
        pictures = size(encoder.size_bytes)
        amount = tr("{model} + {pictures} for pictures", model=amount, pictures=pictures)
    facts = [row.format, amount, sees]
    return [*facts, tr("custom settings")] if row.own_settings else facts


def _problem(row: InstalledRow, model: ModelStatus | None) -> tuple[str, str]:
    """The error text of a file or of its failed load, and its tone."""
    if row.state is FileState.MISSING:
        return tr("File not found. Is its drive unplugged?"), "warning"
    if row.state is FileState.EMBEDS:
        return tr("For searching documents by meaning"), "secondary"
    if row.is_encoder and row.state is FileState.BAD:
        return tr("Lets its model see pictures once it is in the same folder."), "secondary"
    shown = _explanation(row, model)
    if shown is None and row.memory is not None and row.memory.offloaded_bytes:
        return from_disk_words(row.memory.offloaded_seconds), "warning"
    if shown is None:
        return "", "secondary"
    # Nothing is wrong with a file that is too large, which has `memory`, or of an unknown family.
    unknown = row.fault is not None and row.fault.kind is FaultKind.ARCHITECTURE
    mild = row.state is FileState.BAD and (row.memory is not None or unknown)
    return shown.text, "warning" if mild else "danger"


def _explanation(row: InstalledRow, model: ModelStatus | None) -> Explanation | None:
    """Why a file cannot be used; None if it can, or was not found."""
    if row.state is FileState.BAD and not row.is_encoder:
        return explain(row.fault, row.path.name, row.problem, row.remedy)
    if model is not None and model.error and Local(row.path) == (model.failed or model.model):
        return explain(model.fault, row.path.name, model.error, model.remedy)
    return None


def _exact_details(row: InstalledRow) -> str:
    facts = joined(
        row.layout,
        row.architecture,
        *exact_numbers(row.parameters, row.context_model, row.size_bytes),
    )
    return f"{facts}\n{row.path}"


def _menu(row: InstalledRow, encoder: InstalledRow | None, *, in_use: bool) -> tuple[Action, ...]:
    entries = [Action(Verb.UNLOAD, tr("Unload"))] if in_use else []
    if row.state is not FileState.EMBEDS and (
        row.state is FileState.GOOD or row.memory is not None
    ):
        entries.append(Action(Verb.DEFAULTS, tr("Settings for this model…"), row.path))
    if row.state is not FileState.MISSING:
        entries.append(Action(Verb.SHOW_FOLDER, tr("Show in folder"), row.path))
    if row.place is Place.FILE:
        entries.append(Action(Verb.UNLINK, tr("Remove from list"), row.path))
    if row.state is not FileState.MISSING and row.place is not Place.BUNDLED:
        amount = size(row.size_bytes + (encoder.size_bytes if encoder is not None else 0))
        own = row.place is Place.OWN
        text = (
            tr("Move to trash ({size})", size=amount)
            if own
            else tr("Move file to trash ({size})", size=amount)
        )
        entries.append(Action(Verb.DELETE, text, row.path))
    return tuple(entries)


def _resident(row: InstalledRow, model: ModelStatus) -> Meter | None:
    """The memory bar of the loaded model, by the definition of the prediction for a file."""
    loaded = model.loaded
    if loaded is None:
        return None
    available = row.memory.available_bytes if row.memory else 0
    share = loaded.memory_bytes / max(loaded.memory_bytes + available, 1)
    lines = [
        tr(
            "{amount} bytes with a full context of {context} tokens",
            amount=number(loaded.memory_bytes),
            context=number(loaded.context),
        )
    ]
    if loaded.resident_bytes > 0:
        lines.append(
            tr("The whole app holds {amount} bytes now", amount=number(loaded.resident_bytes))
        )
    return Meter(share, tr("Uses {amount}", amount=size(loaded.memory_bytes)), "\n".join(lines))
