"""Application entry point: creates state, window and controller, and runs the qasync event loop.

The window paints before the controller is imported, and the controller before torch. Closing the
window flushes the store and stops the engine before the event loop ends.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys

if sys.platform == "win32":  # before any library is loaded
    from app.system.dll_search import leave_out_working_folder

    leave_out_working_folder()
if sys.argv[1:] == ["--child"]:  # as `ChildPool` starts it; nothing of the window is imported
    from app.child import main as be_child

    be_child()
if sys.argv[1:] == ["--sandbox"]:  # as `app.tools.sandbox` starts it
    from app.tools.sandbox.supervisor import main as supervise

    supervise()
if sys.argv[1:2] == ["--try-gpu-support"]:  # as engine.machine.gpu_support starts it
    from engine import gpu_support

    gpu_support.try_here(sys.argv[2])

if __name__ == "__main__":
    if not all(map(importlib.util.find_spec, ("PySide6", "qasync"))):
        sys.exit(
            "Tokonoma's packages are not installed for this Python. Start it with "
            "`python3 packaging/dev.py run`, which installs them and fetches the starter model."
        )
    gc.disable()  # collecting while modules are imported costs 30 ms; `_session` enables it

# libgomp reads this when torch is imported; spinning threads would block a busy CPU for 8 ms.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import asyncio
import logging
import math
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import qasync  # pyright: ignore[reportMissingTypeStubs]
from PySide6.QtWidgets import QApplication

from app import __version__
from app.chat.models.model_loader import expect_model, expected_model, first_model
from app.chat.settings.builtin_presets import show_built_in
from app.first_paint import apply_settings, paint
from app.settings.table import Settings, load
from app.state.states import States
from app.system import log, paths, restart
from app.system.instance import DesktopRequests, Instance
from app.system.windows_shell import name_program
from app.ui.language import set_language
from app.ui.theme.theme import Theme
from app.ui.window import Window
from engine import bundled_models_folder, gpu_support, gpu_support_folder, starter_path

if TYPE_CHECKING:
    from app.chat.controller import Controller
    from app.store.writer import StoreQueue

_SWITCH_SECONDS = 0.0005  # GIL switch interval: how long the engine thread may block the window
_QUIT_SECONDS = 30.0  # for saving after Qt has ended its event loop
_NO_STARTER = (
    "The starter model is not installed. Get a model in the window; in a checkout, "
    "`python3 packaging/dev.py run` fetches the starter model."
)
_FORCED_SECONDS = 2.0  # time limit per thread when the user quits without saving


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the app; returns the exit status."""
    _open_streams()
    options = _parser().parse_args(arguments)
    sys.setswitchinterval(_SWITCH_SECONDS)
    if not _has_display():
        if not options.smoke:
            other = (
                ", or use `python -m engine chat -m starter -p TEXT` in this terminal"
                if bundled_models_folder() is None
                else ""
            )
            print(
                "There is no display to open a window on. Start the app from a desktop session"
                f"{other}.",
                file=sys.stderr,
            )
            return 2
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    if options.home is not None:
        os.environ["TOKONOMA_HOME"] = str(options.home)
    files = [path.absolute() for path in options.models]
    if not options.smoke:
        settings = load(paths.settings_file())
        if first_model(settings.last_model) is None and not files:
            print(_NO_STARTER)
        return _run(files, settings, smoke_test=False)
    from app import smoke

    model = files[0] if files else starter_path()  # found before TOKONOMA_HOME is changed below
    if not model.is_file():
        print(
            f"There is no model at {model}. Name a GGUF file; in a checkout, "
            "`python3 packaging/dev.py run` fetches the starter model.",
            file=sys.stderr,
        )
        return 1
    with tempfile.TemporaryDirectory(prefix="tokonoma-", ignore_cleanup_errors=True) as home:
        os.environ["TOKONOMA_HOME"] = home
        with closing(log):  # Windows deletes no open file
            return _run([model], smoke.SETTINGS, smoke_test=True)


def _open_streams() -> None:
    """Give a program without a console, as on Windows, the streams that libraries write to."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def run_and_exit() -> NoReturn:
    """Run the app and end the process, without freeing each module and object first.

    All is saved and every file closed by then; with torch loaded, that would take seconds.
    """
    status = main()
    gpu_support.end()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or none on Windows
            stream.flush()
    restart.start_again()
    os._exit(status)


def _run(files: Sequence[Path], settings: Settings, *, smoke_test: bool) -> int:
    """Run the event loop until the app quits; returns the exit status."""
    gpu_support.use(gpu_support_folder())
    if settings.scale != 100:  # Qt reads the variable once, when the application is created
        os.environ.setdefault("QT_SCALE_FACTOR", str(settings.scale / 100))
    name_program()
    application = QApplication(sys.argv[:1])
    application.setApplicationName("Tokonoma")
    application.setApplicationVersion(__version__)
    application.setDesktopFileName(os.environ.get("FLATPAK_ID", "tokonoma"))
    application.setQuitOnLastWindowClosed(False)
    set_language(application, settings.language)
    instance = Instance(paths.data())
    if not smoke_test and not instance.claim(*files):
        print("Tokonoma is already open: its window comes to the front.")
        return 0
    loop = cast("asyncio.AbstractEventLoop", qasync.QEventLoop(application))
    with closing(loop):
        session = _session(application, instance, files, settings, smoke_test)
        return _run_until_complete(loop, session)


def _run_until_complete(
    loop: asyncio.AbstractEventLoop, session: Coroutine[None, None, int]
) -> int:
    """Run the event loop until the session has ended, also when Qt ends the loop before.

    It does so when the desktop's session ends; what is not saved would be lost.
    """
    task, limit = loop.create_task(session), math.inf
    task.add_done_callback(lambda _: loop.stop())
    while not task.done() and time.monotonic() < limit:
        loop.run_forever()  # not `run_until_complete`: it runs tasks once more outside of the loop
        limit = min(limit, time.monotonic() + _QUIT_SECONDS)
    return task.result()


async def _session(
    application: QApplication,
    instance: Instance,
    files: Sequence[Path],
    settings: Settings,
    smoke_test: bool,
) -> int:
    theme, states = Theme(application, settings.theme), States()
    model = _model_of(files, smoke_test)
    others = [path for path in files if path != model]
    expect_model(states.chat, model or expected_model(settings.last_model))
    show_built_in(states.presets)
    made: list[Controller] = []

    def report(error: BaseException) -> None:
        for controller in made:
            controller.report_soon(error)

    log.set_up(paths.log_file(), report)
    window = Window(states, lambda: made[0].settings)
    apply_settings(window, settings)
    quitting = asyncio.Event()
    requests = DesktopRequests(instance)

    # What is asked of the app while it has no controller is done once it has one.
    def open_later(path: str) -> None:
        others.append(Path(path))

    asked = (window.closing, requests.quit)
    for each in asked:
        each.connect(quitting.set)
    requests.opened.connect(open_later)
    application.installEventFilter(requests)
    paint(window)
    for each in asked:
        each.disconnect(quitting.set)
    requests.opened.disconnect(open_later)

    from app.wiring import connect

    controller, store_queue = _controller(states, settings)
    made.append(controller)
    connect(window, controller, theme)
    if sys.platform == "darwin":
        from app.ui.menu_bar import MenuBar

        MenuBar(window)
    window.closing.connect(controller.ask_to_quit)
    controller.may_quit.connect(quitting.set)
    application.aboutToQuit.connect(quitting.set)
    if sys.platform != "win32":  # asyncio loops on Windows have no signal handlers
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, quitting.set)

    def activate(paths: Sequence[Path]) -> None:
        window.come_forward()
        if paths:
            controller.opening.open(paths)

    def activate_for(path: str) -> None:
        activate([Path(path)])

    instance.called.connect(activate)
    instance.other_version.connect(controller.updates.on_other_version)
    requests.opened.connect(activate_for)
    requests.quit.connect(window.quit)
    if not smoke_test:
        instance.listen()
    _enable_garbage_collection()
    controller.start(model)
    if others:
        controller.opening.open(others, load=False)
    status = 0
    if smoke_test:
        from app import smoke

        try:
            print(await smoke.run(controller, window))
        except smoke.SmokeError as error:
            print(error, file=sys.stderr)
            status = 1
    else:
        await quitting.wait()
        window.chat.flush_draft()
        controller.change_settings(window_geometry=window.placement.text())
    from app.store.writer import CLOSE_SECONDS

    instance.close()
    window.hide()
    controller.shut_down()
    forced = controller.quitting.forced
    await _run_in_thread(controller.stop_engine, _FORCED_SECONDS if forced else None)
    controller.save()
    store_queue.end()
    limit = _FORCED_SECONDS if forced else CLOSE_SECONDS
    await _run_in_thread(lambda: store_queue.join(limit))
    window.finish()
    return status


def _model_of(files: Sequence[Path], smoke_test: bool) -> Path | None:
    """The first model among files that the app was started with."""
    if smoke_test or not files:
        return next(iter(files), None)
    from app.chat.sending.opening import is_model

    return next(filter(is_model, files), None)


def _controller(states: States, settings: Settings) -> tuple[Controller, StoreQueue]:
    """Import and create the controller, and the queue of the store that it uses."""
    from app.chat.controller import Controller
    from app.chat.servers.engine_directory import engines_elsewhere
    from app.chat.servers.local_server import shared_engine
    from app.chat.servers.network import Outside
    from app.engines.local import local
    from app.store.writer import StoreQueue

    store_queue = StoreQueue(paths.database())
    engine, serve = shared_engine(lambda: [row.path for row in states.library.folders])
    directory, remote = engines_elsewhere(lambda: controller.settings)
    controller = Controller(
        states,
        store_queue,
        settings,
        paths.settings_file(),
        local(engine),
        outside=Outside(serve, directory, remote),
    )
    return controller, store_queue


def _enable_garbage_collection() -> None:
    """Collect from now on, without looking through what was made at the start each time."""
    gc.freeze()
    gc.enable()


async def _run_in_thread(call: Callable[[], object], seconds: float | None = None) -> None:
    """Run a blocking call on a daemon thread, and wait for it up to `seconds`."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        try:
            call()
        finally:
            with suppress(RuntimeError):  # the loop was closed after the time limit
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="quit", daemon=True).start()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await done.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tokonoma", description="Chat with language models on this computer."
    )
    parser.add_argument("models", nargs="*", type=Path, help="GGUF files: the first one is opened")
    parser.add_argument("--home", type=Path, help="keep everything in this folder")
    parser.add_argument(
        "--smoke", action="store_true", help="ask the starter model one question, and quit"
    )
    parser.add_argument("--version", action="version", version=f"Tokonoma {__version__}")
    return parser


def _has_display() -> bool:
    """Whether Qt can open a window; without one it would abort the process."""
    if sys.platform in ("win32", "darwin") or os.environ.get("QT_QPA_PLATFORM"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


if __name__ == "__main__":
    run_and_exit()
