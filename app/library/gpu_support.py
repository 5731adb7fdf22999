"""GPU support for who installed the packages, which carry the torch for processors.

On a computer with an NVIDIA GPU that this torch cannot use, the settings page offers to fetch the
CUDA build (`app.downloads.gpu_packages`); the engine uses it from the next start on. Nothing is
asked of the driver before the engine has looked for devices, and nothing of the network before the
user clicks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer

from app.downloads.gpu_packages import (
    GPUInstall,
    TrialError,
    begun_bytes,
    finish_removal,
    is_begun,
    remove,
    remove_others,
)
from app.downloads.policy import DownloadError, InstallProgress, InstallStep, Limits, Stopped
from app.net.offline import gate
from app.settings.table import Settings
from app.state.chat import Notice, State
from app.state.devices import refusal_words
from app.state.gpu import GPUPhase, GPUState, GPUView
from app.system.translation import sentences, tr
from app.system.worker import BackgroundWorker
from engine import (
    DeviceFault,
    DeviceInfo,
    GPUSupport,
    GPUSupportUse,
    NvidiaGPU,
    WheelList,
    gpu_support,
    gpu_support_folder,
    nvidia_gpus,
    read_gpu_wheels,
    version_of,
)

NOTICE = "gpu support"  # kind of the notice when what is installed is not used
_TOLD = (GPUSupportUse.INCOMPLETE, GPUSupportUse.CRASHED, GPUSupportUse.FAILED)
_POLL_MILLISECONDS = 250
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Found:
    """What is on this computer."""

    gpus: tuple[NvidiaGPU, ...]
    active: str  # name of the folder that the next start uses
    begun: bool
    begun_bytes: int


class GPUSupportController(QObject):
    """Keeps `GPUState` up to date, and does what its section asks for."""

    def __init__(
        self,
        chat: State,
        state: GPUState,
        settings: Callable[[], Settings],
        parent: QObject | None = None,
        *,
        folder: Callable[[], Path] = gpu_support_folder,
        gpus: Callable[[], tuple[NvidiaGPU, ...]] = nvidia_gpus,
        wanted: Callable[[], WheelList | None] = read_gpu_wheels,
        used: Callable[[], GPUSupport] = gpu_support.status,
        trial: Callable[[Path], str] = gpu_support.trial,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(parent)
        self._chat, self.state, self._settings = chat, state, settings
        self._folder, self._gpus, self._used = folder(), gpus, used
        self._wanted, self._trial, self._limits = wanted(), trial, limits
        self._worker = BackgroundWorker("GPU support", self)
        self._install: GPUInstall | None = None
        self._waits = False  # for the offline switch
        self._poll = QTimer(self, interval=_POLL_MILLISECONDS)
        self._poll.timeout.connect(self._show_progress)
        self._leave_gate = gate.follow(lambda: self._worker.post(self._on_switch))

    def look(self) -> None:
        """Look at the computer and show what there is; after the engine has looked for devices."""
        devices, wanted = tuple(self._chat.devices), self._wanted

        in_use = self._used().use is GPUSupportUse.IN_USE

        def find() -> _Found:
            if not in_use:
                finish_removal(self._folder)
            active = gpu_support.active_name(self._folder)
            begun = wanted is not None and wanted.name != active and is_begun(self._folder, wanted)
            got = begun_bytes(self._folder, wanted) if begun and wanted is not None else 0
            needed = active or begun or _is_refused(devices)
            return _Found(self._gpus() if needed else (), active, begun, got)

        self._worker.run(find, self._on_found)

    def close(self) -> None:
        """Stop an installation; what is there is kept. May block briefly."""
        self._leave_gate()
        if self._install is not None:
            self._install.stop()
        self._worker.close()

    # --- intents --------------------------------------------------------------------------------

    def get(self) -> None:
        """Fetch the packages, or go on fetching them."""
        if self._wanted is None or self._install is not None:
            return
        view = self.state.view
        install = self._install = GPUInstall(
            self._folder,
            self._wanted,
            proxy=self._settings().proxy,
            limits=self._limits,
            report=lambda progress: self._worker.post(self._show_progress),
            trial=self._trial,
        )
        first = InstallProgress(InstallStep.DOWNLOADING, view.done_bytes, self._wanted.size_bytes)
        self._show(GPUPhase.INSTALLING, progress=first)
        again = self._used().use is GPUSupportUse.INCOMPLETE
        self._worker.run(lambda: self._run(install, again), self._on_end)
        self._poll.start()

    def stop(self) -> None:
        """Stop fetching; what is there is kept."""
        self._waits = False
        if self._install is not None:
            self._install.stop()
        elif self.state.view.phase is GPUPhase.INSTALLING:
            self.look()

    def retry(self) -> None:
        """Use what is installed again, at the next start."""
        self._worker.run(lambda: _tried(lambda: gpu_support.forget_failure(self._folder)))
        self._chat.set_notice(NOTICE, None)
        self._show(GPUPhase.READY, can_remove=True)

    def remove(self) -> None:
        """Delete what is installed or begun; what this process uses, at the next start."""
        in_use = self._used().use is GPUSupportUse.IN_USE
        used = self._used().folder if in_use else None

        def work() -> None:
            _tried(lambda: remove(self._folder, used.name if used is not None else ""))

        self._chat.set_notice(NOTICE, None)
        if in_use:
            self._worker.run(work)
            self._show(GPUPhase.REMOVED)
        else:
            self._worker.run(work, lambda _: self.look())

    # --- steps ----------------------------------------------------------------------------------

    def _on_found(self, found: _Found) -> None:
        if self._install is not None:
            return
        wanted, used = self._wanted, self._used()
        # An old card may drive the screen beside one that computes.
        gpu = max(found.gpus, key=lambda each: (each.capability, each.total_bytes), default=None)
        view = GPUView(
            gpu=gpu.name if gpu is not None else "",
            memory_bytes=gpu.total_bytes if gpu is not None else 0,
            size_bytes=wanted.size_bytes if wanted is not None else 0,
            unpacked_bytes=wanted.unpacked_bytes if wanted is not None else 0,
            done_bytes=found.begun_bytes,
            can_remove=bool(found.active) or found.begun,
        )
        problem, remedy = self._refusal(gpu)
        if used.use is GPUSupportUse.IN_USE:
            phase = GPUPhase.IN_USE if found.active else GPUPhase.REMOVED
            view = replace(
                view, phase=phase, can_remove=bool(found.active), problem=self._unusable()
            )
            self._tidy(found.active)
        elif used.use not in (GPUSupportUse.NONE, GPUSupportUse.UNDECIDED) and found.active:
            view = self._not_used(view, used, gpu, bool(problem))
        elif found.active and wanted is not None and found.active == wanted.name:
            view = replace(view, phase=GPUPhase.READY)
        elif gpu is None or not _is_refused(self._chat.devices):
            view = replace(view, phase=GPUPhase.BEGUN if found.begun else GPUPhase.HIDDEN)
        elif problem:
            view = replace(view, phase=GPUPhase.UNAVAILABLE, problem=problem, remedy=remedy)
        else:
            phase = GPUPhase.BEGUN if found.begun else GPUPhase.OFFERED
            view = replace(view, phase=phase, can_get=True)
        self.state.set_view(view)

    def _unusable(self) -> str:
        """Why the engine can use no GPU although torch is built for it; "" if it can."""
        refusals = [each.refusal for each in self._chat.devices]
        if None in refusals:
            return ""
        return next(map(refusal_words, filter(None, refusals)), tr("The GPU cannot be used."))

    def _refusal(self, gpu: NvidiaGPU | None) -> tuple[str, str]:
        """Why GPU support is not offered for a GPU, and what to do; "" if it is."""
        if gpu is None or self._wanted is None:
            return tr("This version of Tokonoma has no GPU support to download."), ""
        if gpu.capability < self._wanted.capability:
            return tr("{gpu} is too old for the computation that Tokonoma does.", gpu=gpu.name), ""
        if version_of(gpu.driver) < version_of(self._wanted.driver):
            return _old_driver(gpu.driver, self._wanted)
        return "", ""

    def _not_used(
        self, view: GPUView, used: GPUSupport, gpu: NvidiaGPU | None, refused: bool
    ) -> GPUView:
        """What is shown of packages that are installed but not used, told in the chat too."""
        use, can_get = used.use, self._wanted is not None and gpu is not None and not refused
        again = tr("Get it again, or remove it.")
        problem, remedy = {
            GPUSupportUse.OTHER_VERSION: (
                tr("The GPU support on this computer is of another version of Tokonoma."),
                again if can_get else "",
            ),
            GPUSupportUse.NO_GPU: (
                tr("GPU support is installed, but no NVIDIA GPU was found."),
                tr("Check that the GPU's driver works."),
            ),
            GPUSupportUse.OLD_DRIVER: _old_driver(used.detail, self._wanted),
            GPUSupportUse.INCOMPLETE: (
                tr("A file of GPU support is missing or damaged: {name}.", name=used.detail),
                again,
            ),
            GPUSupportUse.CRASHED: (
                tr("Tokonoma ended while it was loading GPU support."),
                tr("Update the NVIDIA driver, then try again, or remove GPU support."),
            ),
        }.get(
            use,
            (
                tr("GPU support could not be used."),
                tr("Update the NVIDIA driver, then try again, or remove GPU support."),
            ),
        )
        if use in _TOLD:
            words = sentences(problem, tr("The processor runs the models."))
            remedies = tr("The settings say what to do.")
            self._chat.set_notice(NOTICE, Notice(words, remedies, detail=used.detail))
        return replace(
            view,
            phase=GPUPhase.NOT_USED,
            problem=problem,
            remedy=remedy,
            detail=used.detail if use is GPUSupportUse.FAILED else "",
            can_get=can_get and use in (GPUSupportUse.OTHER_VERSION, GPUSupportUse.INCOMPLETE),
            can_retry=use in (GPUSupportUse.CRASHED, GPUSupportUse.FAILED),
        )

    def _run(self, install: GPUInstall, again: bool) -> DownloadError | Stopped | None:
        """The installation, on the worker; `again`: what is installed has lost a file."""
        try:
            if again:
                gpu_support.deactivate(self._folder)
            remove_others(self._folder, wanted=None if again else self._wanted)
            install.run()
        except (DownloadError, Stopped) as error:
            return error
        except OSError as error:
            return DownloadError(str(error.strerror or error))
        return None

    def _show_progress(self) -> None:
        if self._install is not None and not self._waits:
            self._show(GPUPhase.INSTALLING, progress=self._install.progress())

    def _on_end(self, outcome: DownloadError | Stopped | None) -> None:
        self._install = None
        self._poll.stop()
        if isinstance(outcome, Stopped):
            if not self._waits:
                self.look()
            elif not gate.offline:  # it is online again already
                self._on_switch()
        elif outcome is None:
            self._show(GPUPhase.READY, can_remove=True)
        else:
            detail = outcome.detail if isinstance(outcome, TrialError) else ""
            _log.info("GPU support could not be installed: %s %s", outcome, detail)
            self._show(
                GPUPhase.FAILED,
                problem=str(outcome),
                remedy=outcome.remedy,
                detail=detail,
                can_get=True,
                can_remove=True,
            )

    def _on_switch(self) -> None:
        """The offline switch was moved: an installation stops, and goes on when it is off."""
        if gate.offline and self._install is not None:
            self._waits = True
            self._install.stop()
            note = tr("Offline. It continues when you go online again.")
            progress = self.state.view.progress
            if progress is not None:
                self._show(
                    GPUPhase.INSTALLING,
                    progress=replace(progress, step=InstallStep.WAITING, note=note),
                )
        elif not gate.offline and self._waits:
            self._waits = False
            if self._install is None:
                self.get()

    def _show(
        self,
        phase: GPUPhase,
        *,
        progress: InstallProgress | None = None,
        problem: str = "",
        remedy: str = "",
        detail: str = "",
        can_get: bool = False,
        can_remove: bool = False,
    ) -> None:
        view = replace(
            self.state.view,
            phase=phase,
            progress=progress,
            problem=problem,
            remedy=remedy,
            detail=detail,
            can_get=can_get,
            can_retry=False,
            can_remove=can_remove,
        )
        self.state.set_view(view)

    def _tidy(self, active: str) -> None:
        """Delete the packages that the ones in use took the place of."""
        self._worker.run(lambda: remove_others(self._folder, active, self._wanted))


def _is_refused(devices: Sequence[DeviceInfo]) -> bool:
    """Whether the engine found an NVIDIA GPU that its torch is not built for."""
    return any(
        each.refusal is not None and each.refusal.fault is DeviceFault.NO_SUPPORT
        for each in devices
        if each.name.partition(":")[0] == "cuda"
    )


def _old_driver(driver: str, wanted: WheelList | None) -> tuple[str, str]:
    needed = wanted.driver if wanted is not None else ""
    return (
        tr("The NVIDIA driver is too old: version {driver}.", driver=driver),
        tr("Install version {needed} or a newer one, then start Tokonoma again.", needed=needed),
    )


def _tried(work: Callable[[], None]) -> None:
    """Do what a full or read-only disk may prevent; the next start shows what is there."""
    with suppress(OSError):
        work()
