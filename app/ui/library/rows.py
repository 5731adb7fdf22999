"""Builds the rows of the model library from the state: pure functions from state to view models.

Names and sizes are rounded in the visible text; exact names, token and byte counts are in the
tooltips.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from app.downloads.catalog import CatalogFile, Thinking, computer_of
from app.downloads.queue import Download, Phase
from app.state.chat import ModelStatus
from app.state.library import (
    CatalogRow,
    EmbedderRow,
    FolderRow,
    Hub,
    HubPhase,
    LibraryState,
    Offer,
)
from app.system.byte_size import size
from app.system.durations import time_left
from app.system.translation import isolated, listed, number, sentences, tr, trn
from app.ui.library.installed_rows import GET, on_this_machine
from app.ui.library.row_values import Action, HeadingView, Option, RowView, Verb, View
from app.ui.library.words import (
    DOTS,
    add_pictures,
    bits_each,
    exact_numbers,
    joined,
    model_count,
    predicted,
)
from app.ui.widgets.units import parameters, progress, speed
from engine import model_label

DOWNLOADING, HUB, FOLDERS = "downloading", "hub", "folders"
EMBEDDERS = "embedders"
_MOST_MATCHES = 4  # catalog models that match a query, until all are asked for


def views(
    library: LibraryState,
    model: ModelStatus,
    query: str,
    detailed: Collection[Path] = (),
    every_match: bool = False,
) -> list[View]:
    """All rows of the page; with a query only the matches, local and on Hugging Face.

    The rows of the `detailed` files show the exact text of their problem too. Of the catalog
    the first matches are shown, or `every_match`.
    """
    words = query.casefold().split()
    installed = [row for row in library.installed if _matches(words, row.name, row.path.name)]
    offered = [
        row
        for row in library.catalog
        if _matches(words, row.model.family, row.model.name, row.model.description)
    ]
    shown = [*downloading(library.downloads)]
    if installed or not words:
        shown += on_this_machine(
            installed,
            model,
            library.searched,
            bool(library.catalog),
            detailed,
            library.embedder,
            (*(row.offer for row in library.catalog), *library.hub.files),
        )
    if words:
        shown += selected(offered, every_match) if offered else []
        found = [
            row
            for row in library.embedders
            if _matches(words, row.model.family, row.model.name, row.model.description)
        ]
        shown += to_search_documents(found)
        return [*shown, *on_the_hub(library.hub, query)]
    return [
        *shown,
        *get_a_model(offered, library.computer_bytes),
        *to_search_documents(library.embedders),
        *folders(library.folders),
    ]


# --- downloading --------------------------------------------------------------------------------


def downloading(rows: Sequence[Download]) -> list[View]:
    """The section of unfinished downloads; empty without any."""
    shown = [row for row in rows if row.phase not in (Phase.DONE, Phase.CANCELLED)]
    if not shown:
        return []
    return [HeadingView(DOWNLOADING, tr("Downloading")), *map(download_row, shown)]


def download_row(row: Download) -> RowView:
    """The row of one download."""
    name = model_label(Path(row.file))
    amount = progress(row.done_bytes, row.size_bytes)
    note, tone, links = "", "secondary", ()
    if row.phase is Phase.FAILED:
        note, tone = sentences(row.error, row.remedy), "danger"
        links = (Action(Verb.RETRY, tr("Try again"), row.id),)
    elif row.phase in (Phase.WAITING, Phase.QUEUED):
        note, tone = row.note, "warning"
    icons = [Action(Verb.CANCEL, tr("Cancel downloading {name}", name=name), row.id, "close")]
    if row.phase is Phase.PAUSED:
        text = tr("Resume downloading {name}", name=name)
        icons.insert(0, Action(Verb.RESUME, text, row.id, "play"))
    elif row.phase is not Phase.FAILED:
        text = tr("Pause downloading {name}", name=name)
        icons.insert(0, Action(Verb.PAUSE, text, row.id, "pause"))
    return RowView(
        key=f"download:{row.id}",
        name=name,
        name_tip=f"{row.file}\n{row.url}",
        detail=_download_words(row, amount),
        detail_tip=tr(
            "{done} of {whole} bytes", done=number(row.done_bytes), whole=number(row.size_bytes)
        )
        if row.size_bytes
        else "",
        note=note,
        note_tone=tone,
        links=links,
        progress=row.done_bytes / row.size_bytes if row.size_bytes else 0.0,
        icons=tuple(icons),
    )


def _download_words(row: Download, amount: str) -> str:
    match row.phase:
        case Phase.QUEUED:
            return joined(tr("queued"), amount if row.done_bytes else "")
        case Phase.CONNECTING:
            return joined(tr("connecting…"), amount if row.done_bytes else "")
        case Phase.PAUSED:
            return joined(tr("paused"), amount)
        case Phase.WAITING:
            return joined(tr("waiting"), amount)
        case Phase.VERIFYING:
            return joined(tr("verifying…"), amount)
        case Phase.FAILED:
            return joined(tr("failed"), amount)
        case _:
            fast = speed(row.bytes_per_second)
            return joined(amount, fast or tr("no data arriving"), time_left(row.seconds_left))


# --- catalog ------------------------------------------------------------------------------------


def get_a_model(rows: Sequence[CatalogRow], computer_bytes: int) -> Iterator[View]:
    """The catalog section: the model for this computer, then all others by size of computer."""
    yield HeadingView(
        GET, tr("Get a model"), tr("A short selection. Search above for any other model.")
    )
    yield from (catalog_row(row) for row in rows if row.offer.recommended)
    others = (row for row in rows if not row.offer.recommended)
    for memory_gb, members in groupby(others, key=lambda row: row.model.memory_gb):
        is_this = computer_bytes and memory_gb == computer_of(computer_bytes)
        detail = tr("this computer has {size}", size=size(computer_bytes)) if is_this else ""
        yield HeadingView(f"memory:{memory_gb}", _computers(memory_gb), detail, small=True)
        yield from map(catalog_row, members)
    if not rows:
        yield RowView("no-catalog", note=tr("The list of recommended models is missing."))


def _computers(memory_gb: int) -> str:
    """The heading of the models that computers from one size on can run."""
    return tr("For {count} GB of memory or more", count=memory_gb)


def selected(rows: Sequence[CatalogRow], every: bool) -> Iterator[View]:
    """The catalog models that match a query; the first few, as results of the hub follow."""
    shown = rows if every else rows[:_MOST_MATCHES]
    detail, links = "", ()
    if len(shown) < len(rows):
        detail = tr("{count} of {whole}", count=len(shown), whole=len(rows))
        links = (Action(Verb.EVERY_MATCH, tr("Show all")),)
    yield HeadingView(GET, tr("From the selection"), detail, links)
    yield from map(catalog_row, shown)


def to_search_documents(rows: Sequence[EmbedderRow]) -> Iterator[View]:
    """The catalog section of models that search documents by meaning."""
    if rows:
        detail = tr("Find passages that mean what you ask, in other words too.")
        yield HeadingView(EMBEDDERS, tr("To search documents"), detail)
    for row in rows:
        yield _offer_row(row.model, row.offer, 0, tr(row.model.description))


def catalog_row(row: CatalogRow) -> RowView:
    """The row of one catalog model."""
    model, offer = row.model, row.offer
    sight = tr("Sees pictures.") if model.encoder else ""
    note = sentences(tr(model.description), sight, _thinking(model.thinking))
    return _offer_row(model, offer, model.context, note)


def _offer_row(model: CatalogFile, offer: Offer, context: int, note: str) -> RowView:
    exact = joined(
        model.format,
        model.layout,
        *exact_numbers(model.parameters, context, model.size_bytes),
    )
    facts = joined(
        tr("{count} parameters", count=parameters(model.parameters)),
        bits_each(model.parameters, model.size_bytes) or model.format,
        size(model.size_bytes) if model.size_bytes else tr("size unknown"),
    )
    licence = Action(
        Verb.OPEN_LINK,
        model.licence,
        model.licence_url,
        name=tr("Licence: {name}", name=model.licence),
    )
    return RowView(
        key=f"catalog:{model.id}",
        name=model.name,
        name_tip=model.id,
        badge=tr("Recommended for this computer") if offer.recommended else "",
        detail=facts + DOTS,
        detail_tip=f"{exact}\n{model.repository}/{model.file}",
        link=licence,
        note=offer.problem or note,
        note_tone="warning" if offer.problem else "secondary",
        meter=None if offer.problem else predicted(offer.memory),
        action=_download_action(offer),
        status=_offer_status(offer),
        option=_pictures_option(offer),
        links=_pictures_links(offer),
        menu=(_page_of(model.page()),),
    )


def _thinking(thinking: Thinking) -> str:
    match thinking:
        case Thinking.YES:
            return tr("Thinks before it answers.")
        case Thinking.OPTIONAL:
            return tr("Can think before it answers.")
        case Thinking.NO | Thinking.UNKNOWN:
            return ""


def _page_of(address: str) -> Action:
    return Action(Verb.OPEN_LINK, tr("Open web page"), address)


def _download_action(offer: Offer) -> Action | None:
    """The Download action; None if the model is present, downloading or unusable."""
    if offer.problem or offer.here or offer.coming:
        return None
    return Action(Verb.DOWNLOAD, tr("Download"), offer)


def _pictures_option(offer: Offer) -> Option | None:
    """The check box that adds a picture encoder to the download; None where there is none to add."""
    if _download_action(offer) is None or not offer.encoders:
        return None
    encoder = offer.encoder
    words = add_pictures((encoder or offer.encoders[0]).size_bytes)
    chosen = "" if encoder else offer.encoders[0].file
    return Option(encoder is not None, Action(Verb.CHOOSE_ENCODER, words, (offer, chosen)))


def _pictures_links(offer: Offer) -> tuple[Action, ...]:
    """The link that adds pictures to an installed model that has no encoder."""
    if offer.here is None or not offer.encoders or offer.sees:
        return ()
    return (Action(Verb.ADD_PICTURES, add_pictures(offer.encoders[0].size_bytes), offer),)


def _encoder_choices(offer: Offer) -> tuple[Action, ...]:
    """Menu entries for the other picture encoders of a repository."""
    if _download_action(offer) is None or len(offer.encoders) < 2:
        return ()
    return tuple(
        Action(
            Verb.CHOOSE_ENCODER,
            tr(
                "Picture encoder: {file}, {size}",
                file=encoder.file.rpartition("/")[2],
                size=size(encoder.size_bytes),
            ),
            (offer, encoder.file),
        )
        for encoder in offer.encoders
        if encoder != offer.encoder
    )


def _offer_status(offer: Offer) -> str:
    if offer.here:
        return tr("Installed")
    return tr("Downloading") if offer.coming else ""


# --- Hugging Face -------------------------------------------------------------------------------


def on_the_hub(hub: Hub, query: str) -> Iterator[View]:
    """The section of Hugging Face results; a request is sent only when the user starts it."""
    yield HeadingView(HUB, tr("On Hugging Face"))
    again = Action(Verb.SEARCH, tr("Try again"), query, name=tr("Search Hugging Face again"))
    if hub.query != query or hub.phase is HubPhase.IDLE:
        short = query if len(query) <= 40 else query[:39] + "…"
        is_link = "/" in query
        words = tr("Open this link") if is_link else tr("Search for “{query}”", query=short)
        ask = Action(Verb.SEARCH, words, query)
        note = tr("Nothing is sent until you search.")
        yield RowView("ask", note=note, links=(ask,), ruled=False)
    elif hub.phase is HubPhase.ASKING:
        yield RowView("asking", note=tr("Searching Hugging Face…"), ruled=False)
    elif hub.phase is HubPhase.FAILED:
        trouble = sentences(hub.error, hub.remedy)
        yield RowView("failed", note=trouble, note_tone="danger", links=(again,), ruled=False)
    elif not hub.results and not hub.files:
        note = tr("No models found. Try fewer or different words.")
        yield RowView("nothing", note=note, ruled=False)
    else:
        yield from _results(hub)


def _results(hub: Hub) -> Iterator[View]:
    for row in hub.results:
        opened = row.id == hub.open
        facts = joined(
            trn("{count} download", "{count} downloads", row.downloads) if row.downloads else "",
            row.licence,
            trn("{count} file", "{count} files", row.files) if row.files else "",
        )
        updated = tr("Updated {date}", date=row.updated) if row.updated else ""
        yield RowView(
            key=f"repository:{row.id}",
            name=row.id.partition("/")[2],
            name_tip=row.id,
            detail=joined(tr("by {owner}", owner=row.id.partition("/")[0]), facts),
            detail_tip=f"{row.id}\n{updated}".strip(),
            note=tr("Its owner requires you to sign in on the website. Tokonoma cannot do that.")
            if row.gated
            else "",
            action=Action(Verb.OPEN_REPOSITORY, tr("Close"), "")
            if opened
            else Action(Verb.OPEN_REPOSITORY, tr("Files"), row.id),
            menu=(_page_of(row.page),),
            ruled=not opened,
        )
        if opened:
            yield from _files(hub)
    if not hub.results:
        yield from (offer_row(offer, 0) for offer in hub.files)


def _files(hub: Hub) -> Iterator[View]:
    if hub.open_phase is HubPhase.ASKING:
        yield RowView("opening", note=tr("Loading the list of files…"), indent=1)
    elif hub.open_phase is HubPhase.FAILED:
        again = Action(Verb.OPEN_REPOSITORY, tr("Try again"), hub.open)
        trouble = sentences(hub.open_error, hub.open_remedy)
        yield RowView("not-opened", note=trouble, note_tone="danger", links=(again,), indent=1)
    elif not hub.files:
        yield RowView("no-files", note=tr("It has no GGUF files, which Tokonoma needs."), indent=1)
    elif hub.missing:
        note = tr("It has no file {name}. It has these:", name=hub.missing)
        yield RowView("missing", note=note, note_tone="warning", indent=1)
    for offer in hub.files:
        yield offer_row(offer, 1)


def offer_key(offer: Offer) -> str:
    """The key of the row of a downloadable file."""
    return f"offer:{offer.source.url or offer.source.repository}/{offer.source.file}"


def offer_row(offer: Offer, indent: int) -> RowView:
    """The row of one downloadable file, from Hugging Face or from a link."""
    source = offer.source
    return RowView(
        key=offer_key(offer),
        name=offer.label or offer.format or offer.name,
        name_tip=f"{source.repository}/{source.file}" if source.repository else source.url,
        badge=tr("Recommended") if offer.recommended else "",
        detail=joined(
            size(source.size_bytes) if source.size_bytes else tr("size unknown"),
            offer.layout,
            source.file,
        ),
        detail_tip=source.file,
        note=offer.problem,
        note_tone="warning",
        meter=None if offer.problem else predicted(offer.memory),
        action=_download_action(offer),
        status=_offer_status(offer),
        option=_pictures_option(offer),
        links=_pictures_links(offer),
        menu=(*_encoder_choices(offer), *((_page_of(source.page),) if source.page else ())),
        indent=indent,
    )


# --- folders ------------------------------------------------------------------------------------


def folders(rows: Sequence[FolderRow]) -> Iterator[View]:
    """The section of folders that are scanned for models."""
    yield HeadingView(FOLDERS, tr("Folders"), links=(Action(Verb.ADD_FOLDER, tr("Add folder…")),))
    for row in rows:
        name = tr("Downloaded models") if row.own else row.path.name or str(row.path)
        menu = [Action(Verb.SHOW_FOLDER, tr("Show in folder"), row.path)] if row.present else []
        if not row.own:
            menu.append(Action(Verb.REMOVE_FOLDER, tr("Remove from list"), row.path))
        yield RowView(
            key=f"folder:{row.path}",
            name=name,
            name_tip=str(row.path),
            detail=joined(isolated(str(row.path)), model_count(row.models) if row.present else ""),
            note=_folder_note(row),
            note_tone="warning",
            menu=tuple(menu),
        )


def _folder_note(row: FolderRow) -> str:
    """What is wrong with a folder; "" if nothing is."""
    if not row.present:
        return "" if row.own else tr("Folder not found. Its models return when it is back.")
    if not row.skipped:
        return ""
    names = listed(path.name for path in row.skipped[:3])
    if len(row.skipped) > 3:
        names += ", …"
    return trn(
        "{count} link was skipped; its folder is missing or contains the link: {names}",
        "{count} links were skipped; their folders are missing or contain the link: {names}",
        len(row.skipped),
        names=names,
    )


def _matches(words: Sequence[str], *texts: str) -> bool:
    """Whether every word of a query occurs in the texts, ignoring case."""
    whole = " ".join(texts).casefold()
    return all(word in whole for word in words)
