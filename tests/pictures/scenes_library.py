"""Scenes of the model library page with made-up states, for tests/pictures/shots.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QMimeData, QPoint, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent
from PySide6.QtWidgets import QApplication

from app.domain.model_ref import Local
from app.downloads import catalog
from app.downloads.catalog import CatalogModel
from app.downloads.queue import Download, Phase, Source
from app.library.model_trash import deleted_line
from app.library.offers import RUNS
from app.library.pictures import WORK_BYTES, PictureChoices, has_room
from app.library.recommended import arranged
from app.net.hub import Piece, Repository
from app.settings.model_settings import ModelDefaults, in_settings
from app.settings.table import Settings
from app.state.chat import ModelPhase, ModelStatus, State
from app.state.library import (
    CatalogRow,
    DefaultsView,
    EmbedderRow,
    FileState,
    FolderRow,
    Hub,
    HubPhase,
    InstalledRow,
    LibraryState,
    Line,
    Memory,
    Offer,
    Place,
    TrashedModel,
)
from app.ui.library.page import LibraryPage
from app.ui.library.row_values import Action, Verb
from engine import (
    DeviceFault,
    DeviceInfo,
    DevicePart,
    DeviceRefusal,
    Fault,
    FaultKind,
    LayerGroup,
    ModelLoaded,
)
from stage import Stage, flush, wait_for_workers

OWN = Path("/home/ada/.local/share/Tokonoma/models")
DRIVE = Path("/media/ada/Models")
STARTER = OWN / "SmolLM2-135M-Instruct.Q4_1.gguf"
ROOM = 6_200_000_000
LoadedScene = Callable[[State, LibraryState, LibraryPage], None]


def installed(
    file: str,
    name: str,
    layout: str,
    form: str,
    size: int,
    needed: int,
    place: Place = Place.OWN,
    folder: Path = OWN,
) -> InstalledRow:
    memory = Memory(needed, ROOM, 8192, size, needed - size, 0)
    return InstalledRow(
        folder / file, name, size, place, FileState.GOOD, layout, form, "llama", 135_000_000, 8192,
        memory,
    )  # fmt: skip


SMOL = installed(
    STARTER.name, "SmolLM2 135M Instruct", "4-bit with minimum, groups of 32", "Q4_1",
    98_362_432, 310_000_000,
)  # fmt: skip
BONSAI = installed(
    "Bonsai-8B-Q1_0.gguf", "Bonsai 8B", "1-bit, groups of 128", "Q1_0", 1_160_000_000, 2_130_000_000
)
QWEN = installed(
    "Qwen3-8B-Q4_K_M.gguf", "Qwen3 8B", "4-bit, groups of 32 in blocks of 256", "Q4_K",
    5_030_000_000, 5_300_000_000, Place.FOLDER, DRIVE,
)  # fmt: skip


def in_use(row: InstalledRow) -> ModelStatus:
    loaded = ModelLoaded(
        1, row.path, row.name, "llama", row.layout, row.parameters, 8192, row.size_bytes,
        310_000_000, "reference", (), 0.8, resident_bytes=418_000_000,
    )  # fmt: skip
    return ModelStatus(ModelPhase.READY, Local(row.path), row.name, loaded=loaded)


def offered(computer_gb: int = 8, available: int = ROOM, without: str = "") -> list[CatalogRow]:
    """The catalog on a computer of this size, with an engine that runs all but one architecture."""
    models = catalog.load()
    runs = {model.architecture for model in models} - {without}
    rows, fitting, seeing = [], set(), set()
    for model in models:
        trouble = catalog.problem(model, RUNS, runs)
        memory = None if trouble else predicted(model, available)
        if memory and memory.needed_bytes <= 0.9 * available:
            fitting.add(model.id)
        here = STARTER if "SmolLM2-135M" in model.file else None
        offer = Offer(model.source, model.name, model.layout, model.format, problem=trouble, memory=memory, here=here)  # fmt: skip
        if model.encoder:
            more, encoder = (
                model.encoder_bytes + WORK_BYTES,
                Piece(model.encoder, model.encoder_bytes),
            )
            both = replace(memory, needed_bytes=memory.needed_bytes + more, encoder_bytes=more) if memory else None  # fmt: skip
            seeing |= {model.id} if both and has_room(both) else set()
            offer = PictureChoices().applied_to_one(offer, encoder, both)
        rows.append(CatalogRow(model, offer))
    return arranged(rows, fitting, seeing, computer_gb)


def predicted(model: CatalogModel, available: int) -> Memory:
    """About what the engine predicts, without loading it: with the usual context."""
    groups = model.layer_groups or (LayerGroup(model.layers, model.kv_heads, model.head_width),)
    token = sum(4 * group.layers * group.kv_heads * group.head_width for group in groups)
    weights, scratch, context = int(1.02 * model.size_bytes), 200_000_000, 32_768
    while weights + scratch + token * context > 0.9 * available and context > 512:
        context //= 2
    total = weights + scratch + token * context
    return Memory(total, available, context, weights, token * context, scratch)


def download(
    number: int, file: str, phase: Phase, done: int, whole: int, **values: object
) -> Download:
    plain: dict[str, object] = {
        "id": number, "url": f"https://huggingface.co/owner/name/resolve/main/{file}", "file": file,
        "path": OWN / file, "repository": "owner/name", "size_bytes": whole, "done_bytes": done,
        "bytes_per_second": 0.0, "seconds_left": None, "phase": phase, "note": "", "error": "",
        "remedy": "", "sha256": "",
    }  # fmt: skip
    return Download(**{**plain, **values})  # type: ignore[arg-type]


def folders(*more: FolderRow) -> list[FolderRow]:
    return [FolderRow(OWN, True, True, 2), *more]


# --- scenes -------------------------------------------------------------------------------------


def library_empty(state: State, library: LibraryState, page: LibraryPage) -> None:
    library.set_installed([])
    library.set_catalog(offered(), 8_400_000_000)
    library.set_folders(folders(), 41_300_000_000)


def library_full(state: State, library: LibraryState, page: LibraryPage) -> None:
    library.set_installed([SMOL, BONSAI, replace(QWEN, own_settings=True)])
    library.set_catalog(offered(), 8_400_000_000)
    library.set_folders(folders(FolderRow(DRIVE, False, True, 1)), 41_300_000_000)
    state.set_model(in_use(SMOL))


def library_embedders(state: State, library: LibraryState, page: LibraryPage) -> None:
    """Two installed models that search documents, one of them in use, and those of the catalog."""
    library_full(state, library, page)
    small = replace(
        SMOL, path=OWN / "all-MiniLM-L6-v2-Q8_0.gguf", name="all-MiniLM-L6-v2", size_bytes=25_282_048,
        format="Q8_0", layout="8-bit, groups of 32", memory=None, state=FileState.EMBEDS, place=Place.OWN,
    )  # fmt: skip
    gemma = replace(
        small, path=OWN / "embeddinggemma-300M-Q8_0.gguf", name="embeddinggemma-300M", size_bytes=333_590_944
    )  # fmt: skip
    library.set_installed([SMOL, gemma, small])
    library.set_embedder(gemma.path)
    rows = [EmbedderRow(one, Offer(one.source, one.name)) for one in catalog.load_embedders()]
    first = rows[0]
    library.set_embedders([replace(first, offer=replace(first.offer, here=gemma.path)), *rows[1:]])
    flush()
    page.list.scroll_to("embedders")


def library_from_disk(state: State, library: LibraryState, page: LibraryPage) -> None:
    """A model that is larger than the free memory."""
    library_full(state, library, page)
    memory = Memory(
        4_980_000_000, 6_200_000_000, 4_096, offloaded_bytes=3_700_000_000, offloaded_seconds=2.04
    )
    library.set_installed([SMOL, BONSAI, replace(QWEN, memory=memory)])


def library_pictures(state: State, library: LibraryState, page: LibraryPage) -> None:
    """A model with its picture encoder, one that lacks it, and an encoder without a model."""
    library_full(state, library, page)
    fault = Fault(FaultKind.OTHER_TYPE, "mmproj")
    encoder = replace(
        SMOL, path=OWN / "Bonsai-8B.mmproj-F16.gguf", name="Bonsai-8B.mmproj", size_bytes=918_000_000,
        format="", state=FileState.BAD, fault=fault, memory=None,
    )  # fmt: skip
    orphan = replace(encoder, path=DRIVE / "mmproj-F16.gguf", name="mmproj", place=Place.FOLDER)
    seeing = replace(BONSAI, encoder=encoder.path)
    library.set_installed([SMOL, seeing, encoder, QWEN, orphan])


def library_end(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    library.set_folders(
        folders(
            FolderRow(DRIVE, False, True, 1),
            FolderRow(Path("/run/media/ada/Backup drive/models"), False, False),
        ),
        41_300_000_000,
    )
    page.refresh()
    page.list.scroll_to("folders")


def library_loading(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    state.set_model(
        ModelStatus(ModelPhase.LOADING, Local(BONSAI.path), BONSAI.name, 430_000_000, 1_160_000_000)
    )


def library_downloading(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    library.set_downloads(
        [
            download(
                1, "Qwen3-4B-Q4_K_M.gguf", Phase.RUNNING, 1_210_000_000, 2_500_000_000,
                bytes_per_second=14.2e6, seconds_left=91.0,
            ),
            download(2, "Bonsai-4B-Q1_0.gguf", Phase.PAUSED, 90_000_000, 572_270_624),
            download(
                3, "gemma-3-1b-it-Q4_K_M.gguf", Phase.WAITING, 310_000_000, 806_000_000,
                note="The connection was lost. Trying again in 8 s.",
            ),
            download(4, "SmolLM2-360M-Instruct-Q8_0.gguf", Phase.VERIFYING, 386e6, 386_000_000),
            download(5, "Llama-3.2-1B-Instruct-Q4_K_M.gguf", Phase.QUEUED, 0, 807_694_464),
        ]
    )  # fmt: skip


def on_computer(gigabytes: int, available: int) -> LoadedScene:
    """The catalog on a computer with so much memory, of which so much is available."""

    def scene(state: State, library: LibraryState, page: LibraryPage) -> None:
        library_full(state, library, page)
        library.set_catalog(offered(gigabytes, available), gigabytes * 10**9)
        page.window().resize(1000, 1500)
        page.refresh()
        page.list.scroll_to("get")

    scene.__name__ = f"library_catalog_{gigabytes}_gb"
    return scene


def library_refused(state: State, library: LibraryState, page: LibraryPage) -> None:
    """A file of an architecture that the engine does not run, and its exact text unfolded."""
    library_full(state, library, page)
    refused = replace(
        QWEN,
        path=DRIVE / "Qwen3.8-Flash-Next-Q4_K_M.gguf",
        name="Qwen3.8 Flash Next",
        state=FileState.BAD,
        architecture="qwen4exp",
        memory=None,
        problem="The file is a 'qwen4exp' model, an architecture this version cannot run.",
        remedy="Choose a model of one of these kinds: gemma3, llama, qwen3, qwen35.",
        fault=Fault(FaultKind.ARCHITECTURE, "qwen4exp", nearest="Qwen3.5 models (qwen35)"),
    )
    other = replace(
        refused,
        path=DRIVE / "RWKV7-World-2.9B-Q8_0.gguf",
        name="RWKV7 World 2.9B",
        fault=Fault(FaultKind.ARCHITECTURE, "rwkv7"),
    )
    library.set_installed([SMOL, refused, other])
    page.refresh()
    link = Action(Verb.DETAILS, "Details", refused.path)
    page.list.acted.emit(link)


def library_failed(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    library.set_downloads(
        [
            download(
                1, "Qwen3-4B-Q4_K_M.gguf", Phase.FAILED, 1_210_000_000, 2_500_000_000,
                error="What arrived is not the file that was described: its SHA-256 differs.",
                remedy="It was removed; try again, or choose another file.",
            )
        ]
    )  # fmt: skip
    bad = InstalledRow(
        OWN / "half-Q4_0.gguf", "half", 40_000_000, Place.FILE, FileState.BAD, "", "", "", 0, 0, None,
        "The file ends at byte 40,000,000, but the tensor 'blk.7.ffn_up.weight' needs bytes up to "
        "49,043,008.",
        "It is cut short or damaged; download it again.",
        Fault(FaultKind.INCOMPLETE),
    )  # fmt: skip
    gone = InstalledRow(DRIVE / "Mistral-7B.gguf", "Mistral 7B", 0, Place.FILE, FileState.MISSING)
    library.set_installed([SMOL, bad, gone, BONSAI])
    library.set_line(
        Line(
            "Qwen3 8B needs 5.0 GB, but the disk has room for only 3.1 GB.",
            "Delete models you no longer use, or choose a smaller one.",
            trouble=True,
        )
    )


def library_deleted(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    library.set_installed([SMOL, QWEN])
    deleted = TrashedModel(BONSAI.path, "Bonsai 8B · Q1_0", BONSAI.size_bytes, False, 0.0, ())
    library.set_line(deleted_line([deleted]))


def library_unloaded(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    state.set_model(ModelStatus(freed_bytes=612_000_000))
    library.set_line(Line("Model unloaded. 612 MB of memory is free again."))


def library_search(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    page.search.setText("qwen3")


def hub_answer() -> Hub:
    repositories = [
        ("Qwen/Qwen3-8B-GGUF", 1_204_118, False, "apache-2.0", 5),
        ("unsloth/Qwen3-8B-GGUF", 412_771, False, "apache-2.0", 24),
        ("somebody/Qwen3-8B-private-tune-with-a-very-long-name-GGUF", 812, True, "other", 3),
    ]
    results = tuple(
        Repository(id=name, downloads=many, likes=0, gated=gated, licence=licence, files=files, updated="2026-05-01")
        for name, many, gated, licence, files in repositories
    )  # fmt: skip
    files = [
        ("Q4_K_M", "4-bit", 5_027_783_488, "", True),
        ("Q5_K_M", "5-bit", 5_851_112_224, "", False),
        ("Q8_0", "8-bit", 8_709_518_112, "", False),
        ("Q4_0_8_8", "4-bit", 4_700_000_000, "Q4_0_8_8 is not supported yet.", False),
    ]  # fmt: skip
    offers = tuple(
        Offer(
            Source("Qwen/Qwen3-8B-GGUF", "main", f"Qwen3-8B-{form}.gguf", size),
            "Qwen3 8B", words, form, best, trouble, Memory(size, ROOM, at_least=True),
        )
        for form, words, size, trouble, best in files
    )  # fmt: skip
    return Hub(
        HubPhase.ANSWERED, "qwen3 8b", results,
        open="Qwen/Qwen3-8B-GGUF", open_phase=HubPhase.ANSWERED, files=offers,
    )  # fmt: skip


def library_hub(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    page.search.setText("qwen3 8b")
    library.set_hub(hub_answer())


def library_offline(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    page.search.setText("qwen3")
    library.set_hub(
        Hub(
            HubPhase.FAILED, "qwen3",
            error="huggingface.co cannot be reached.",
            remedy="Check your internet connection, then try again.",
        )
    )  # fmt: skip


def library_defaults(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    library.set_defaults(
        DefaultsView(
            BONSAI.path, BONSAI.name, ModelDefaults(context=16_384, temperature=0.5),
            in_settings(Settings()), 32_768, Memory(5_100_000_000, ROOM, 16_384),
            drafts=((OWN / "small.gguf", "Bonsai 0.6B (Q1_0)"), (OWN / "mid.gguf", "Bonsai 1.7B (Q1_0)")),
        )
    )  # fmt: skip


GPU = DeviceInfo("cuda", "NVIDIA GeForce RTX 4070", 12_600_000_000, 4_100_000_000)
SPLIT = (
    DevicePart("cpu", "", 12, 1_900_000_000),
    DevicePart("cuda", GPU.label, 24, 3_700_000_000),
)


def library_split(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_defaults(state, library, page)
    view = library.defaults
    assert view is not None
    moved = DeviceRefusal(DeviceFault.TOO_LARGE, "24 of 36 layers fit.")
    library.set_devices((GPU,))
    library.set_defaults(replace(view, runs_on=SPLIT, speedup=2.4, moved=moved))


def library_gpu_refused(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_defaults(state, library, page)
    view = library.defaults
    assert view is not None
    refused = DeviceRefusal(DeviceFault.TOO_OLD, "The NVIDIA GeForce GTX 1060 is too old.")
    library.set_devices((replace(GPU, label="NVIDIA GeForce GTX 1060", refusal=refused),))
    values = ModelDefaults(runs_on="gpu")
    library.set_defaults(
        replace(
            view, values=values, runs_on=(DevicePart("cpu", "", 36, 5_100_000_000),), moved=refused
        )
    )


def library_draft_model(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_defaults(state, library, page)
    view = library.defaults
    assert view is not None
    library.set_defaults(replace(view, values=ModelDefaults(draft=OWN / "small.gguf")))


def library_narrow(state: State, library: LibraryState, page: LibraryPage) -> None:
    page.window().resize(420, 820)
    library_downloading(state, library, page)


def library_names(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    long = "Very-Long-Model-Name-With-Many-Parts-And-A-Date-2026-05-01-instruct-distilled-and-merged-v12"
    library.set_installed(
        [
            replace(SMOL, path=OWN / "a.gguf", name="نموذج صغير للمحادثة باللغة العربية"),
            replace(BONSAI, path=OWN / "b.gguf", name="通义千问 三 八十亿 参数 指令 微调"),
            replace(QWEN, path=OWN / "c.gguf", name=long.replace("-", " ")),
            replace(SMOL, path=OWN / "d.gguf", name="👩🏽‍🔬 Model 🌲 <b>bold</b> & more"),
        ]
    )
    library.set_downloads(
        [download(1, f"{long}-Q4_K_M.gguf", Phase.RUNNING, 5e8, 25e8, bytes_per_second=3.4e6, seconds_left=590.0)]
    )  # fmt: skip


def library_dragging(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(BONSAI.path))])
    event = QDragEnterEvent(
        QPoint(400, 300), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )  # fmt: skip
    QApplication.sendEvent(page, event)


def library_keyboard(state: State, library: LibraryState, page: LibraryPage) -> None:
    library_full(state, library, page)
    page.refresh()
    page.window().activateWindow()
    page.list.setFocus(Qt.FocusReason.TabFocusReason)


def wait_for_files(stage: Stage) -> None:
    """Wait until the library's worker threads are idle."""
    wait_for_workers(stage.controller)
    flush()


def on_stage(scene: LoadedScene) -> Callable[[Stage], None]:
    """Wrap a scene: show it in the whole window after the real library has finished its scan."""

    def play(stage: Stage) -> None:
        stage.start()
        stage.window.library.open()
        for _ in range(3):  # a finished job may queue another
            wait_for_files(stage)
        scene(stage.states.chat, stage.states.library, stage.window.library.page)
        flush()

    return play


LIBRARY_SCENES: tuple[LoadedScene, ...] = (
    library_empty, library_full, library_embedders, library_pictures, library_from_disk, library_end, library_loading, library_downloading, library_failed,
    library_deleted, library_unloaded, library_search, library_hub, library_offline,
    library_refused, on_computer(4, 2_700_000_000), on_computer(8, ROOM), on_computer(16, 13_300_000_000),
    on_computer(32, 27_600_000_000),
    library_defaults, library_split, library_gpu_refused, library_draft_model, library_narrow, library_names, library_dragging, library_keyboard,
)  # fmt: skip
SCENES: dict[str, Callable[[Stage], None]] = {
    scene.__name__: on_stage(scene) for scene in LIBRARY_SCENES
}
