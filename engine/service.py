"""Engine: owns the thread, takes commands, delivers events.

Everything heavy is imported inside functions that run on the engine's thread, so the window paints
before torch is loaded. This is the one place that catches everything, panics of Rust libraries
included, which are no `Exception`: it is logged, answered with `Failed`, and the thread lives on.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from engine.errors import Cancelled, EngineError, RequestError
from engine.host.device import give_back_memory, memory_error, resident_memory
from engine.loading.identity import Stamp, stamps
from engine.loading.library import model_parts
from engine.messages import (
    AdaptersSet,
    Cancel,
    Command,
    Event,
    Failed,
    Finished,
    FinishReason,
    Generate,
    LoadModel,
    LoadProgress,
    LoadSnapshot,
    ModelLoaded,
    ModelUnloaded,
    SaveSnapshot,
    SetAdapters,
    SnapshotLoaded,
    SnapshotSaved,
    UnloadModel,
)
from engine.snapshot.folder import snapshots_folder

if TYPE_CHECKING:
    from engine.loading.loader import LoadedModel
    from engine.model_host import ModelHost
    from engine.snapshot.saver import Saver
    from engine.snapshot.store import Snapshots

log = logging.getLogger(__name__)


class Engine:
    """The engine thread: commands are carried out one by one, in the order they were sent.

    `deliver` is called on that thread, once per event, but for what ends SaveSnapshot, which comes
    from the thread that writes; it must neither block nor raise. Every command but Cancel is over
    with exactly one event of its request, the last to name it:

    - LoadModel: ModelLoaded, or Failed, before which ModelUnloaded says that no model is left.
      When cancelled: ModelUnloaded, or ModelLoaded for the model from before that is still there.
    - UnloadModel: ModelUnloaded.
    - Generate: Finished, or Failed.
    - SetAdapters: AdaptersSet, or Failed, after which the stack is as it was. When cancelled:
      AdaptersSet for the stack as it was.
    - LoadSnapshot: SnapshotLoaded, or Failed. When cancelled: SnapshotLoaded without any tokens.
    - SaveSnapshot: SnapshotSaved, or Failed; events of later commands may come first. With
      nothing new to save, and when cancelled before it began: SnapshotSaved of 0 tokens.

    Cancel is never answered itself; one for a request that neither runs nor waits does nothing.
    """

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        self._deliver = deliver
        self._thread: threading.Thread | None = None
        self._commands: deque[Command] = deque()
        self._wake = threading.Condition()
        self._running: Command | None = None  # the one being carried out
        self._cancelled: set[int] = set()  # of those that run or wait
        self._stopping = False
        self._host: ModelHost | None = None
        self._saver: Saver | None = None
        self._snapshots: Snapshots | None = None

    def start(self) -> None:
        """Start the thread; returns at once. Commands sent before are carried out now."""
        assert self._thread is None, "the engine was started twice"
        if self._stopping:
            return
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        """Queue a command, from any thread; `Cancel` overtakes those that wait.

        What is sent after `stop` is dropped without an answer.
        """
        with self._wake:
            if self._stopping:
                return
            if not isinstance(command, Cancel):
                self._commands.append(command)
                self._wake.notify()
            elif any(command.request == unanswered.request for unanswered in self._unanswered()):
                self._cancelled.add(command.request)

    def stop(self) -> None:
        """Cancel what runs and what waits, end the thread and wait for it; for good.

        What was to be saved is saved all the same, and waited for. May be called more than once,
        and before `start`, but not from `deliver`.
        """
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # --- the engine's thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            _load_torch_library()
        except BaseException:  # told by each command, whose own import of torch fails again
            log.exception("torch cannot be loaded")
        while self._is_on():
            try:
                while (command := self._next()) is not None:
                    self._carry_out(command)
                    self._forget(command)
            except BaseException as fault:  # noqa: BLE001  nothing may end this thread unanswered
                self._fail_all(fault)
        self._shut_down()

    def _carry_out(self, command: Command) -> None:
        """Handle a command to its last event; a fault in handling it is that event."""
        try:
            self._handle(command)
        except Cancelled:
            self._on_cancelled(command)
        except EngineError as error:
            self._fail(command, error)
        except BaseException as fault:  # noqa: BLE001  a panic is no Exception
            self._fail(command, memory_error(fault) or _unexpected(fault))

    def _is_on(self) -> bool:
        with self._wake:
            return not self._stopping or bool(self._commands)

    def _unanswered(self) -> list[Command]:
        """The command that runs and those that wait; the caller has the lock."""
        return [*([] if self._running is None else [self._running]), *self._commands]

    def _forget(self, command: Command) -> None:
        with self._wake:
            self._running = None
            self._cancelled.discard(command.request)

    def _fail_all(self, fault: BaseException) -> None:
        """Answer what runs and what waits, after a fault outside of any one command."""
        error = _unexpected(fault)
        with self._wake:
            unanswered = self._unanswered()
            self._commands.clear()
        for command in unanswered:
            try:
                self._fail(command, error)
            except BaseException:
                log.exception("request %d cannot be answered", command.request)
            self._forget(command)

    def _shut_down(self) -> None:
        """Let what is being saved be written, and give everything back."""
        try:
            self._wait_for_saver()
            self._unload()
        except BaseException:
            log.exception("the engine did not give everything back")

    def _next(self) -> Command | None:
        """The next command; None when the engine is to stop and nothing waits."""
        with self._wake:
            while not self._commands and not self._stopping:
                self._wake.wait()
            if not self._commands:
                return None
            self._running = command = self._commands.popleft()
            return command

    def _handle(self, command: Command) -> None:
        checkpoint = self._checkpoint(command)
        match command:
            case LoadModel():
                self._load(command, checkpoint)
            case UnloadModel():
                self._deliver(self._unloaded(command.request))
            case Generate():
                checkpoint()
                cancelled = partial(self._is_cancelled, command.request)
                for event in self._required().generate(command, checkpoint, cancelled):
                    self._deliver(event)
            case SetAdapters():
                checkpoint()
                self._deliver(self._required().set_adapters(command, checkpoint))
            case LoadSnapshot():
                checkpoint()
                self._deliver(self._required().load_snapshot(command, checkpoint))
            case SaveSnapshot():
                checkpoint()
                if (saved := self._required().save_snapshot(command, checkpoint)) is not None:
                    self._deliver(saved)
            case Cancel():
                pass  # `send` has noted it
            case _:
                assert_never(command)

    def _load(self, command: LoadModel, checkpoint: Callable[[], None]) -> None:
        from engine.loading.loader import load
        from engine.model_host import ModelHost
        from engine.snapshot.saver import Saver
        from engine.snapshot.store import Snapshots

        def unload() -> None:
            self._wait_for_saver(checkpoint)  # which still reads the session that is to go
            self._unload()

        checkpoint()
        files = _stamps(command.path)  # before they are read
        model = load(
            command.path,
            context=command.context,
            threads=command.threads,
            cache=command.cache,
            tokenizer_file=command.tokenizer,
            reclaimable=0 if self._host is None else self._host.held_bytes,
            progress=lambda done, total: self._deliver(LoadProgress(command.request, done, total)),
            checkpoint=checkpoint,
            before_weights=unload,
        )
        if self._saver is None or self._snapshots is None:
            self._saver = Saver(self._deliver)
            self._snapshots = Snapshots(snapshots_folder())
        self._host = ModelHost(model, files, self._snapshots, self._saver)
        self._deliver(_loaded(command.request, model))

    def _required(self) -> ModelHost:
        if self._host is None:
            raise RequestError("No model is loaded.", "Choose a model first.")
        return self._host

    def _unloaded(self, request: int) -> ModelUnloaded:
        """Drop the model, once its session is not being written any more."""
        before = resident_memory()
        self._wait_for_saver()
        self._unload()
        after = resident_memory()
        return ModelUnloaded(request, max(before - after, 0), after)

    def _unload(self) -> None:
        if self._host is not None:
            from kernels import ops

            self._host = None
            ops.release()
            give_back_memory()

    def _wait_for_saver(self, checkpoint: Callable[[], None] = lambda: None) -> None:
        if self._saver is not None:
            self._saver.wait(checkpoint)

    def _is_cancelled(self, request: int) -> bool:
        return self._stopping or request in self._cancelled

    def _checkpoint(self, command: Command) -> Callable[[], None]:
        def checkpoint() -> None:
            # A stop does not keep a session from being saved.
            stopping = self._stopping and not isinstance(command, SaveSnapshot)
            if stopping or command.request in self._cancelled:
                raise Cancelled

        return checkpoint

    def _on_cancelled(self, command: Command) -> None:
        """The event that ends a command which changed nothing, or not all it was to."""
        request, host = command.request, self._host
        match command:
            case Generate():  # cancelled before it began
                held = 0 if host is None else len(host.session.tokens)
                self._deliver(_nothing_said(request, held))
            case SetAdapters():
                unchanged = AdaptersSet(request, (), changed=False, discarded_tokens=0)
                self._deliver(unchanged if host is None else host.adapters(request))
            case LoadSnapshot():
                self._deliver(SnapshotLoaded(request, 0, 0, 0, 0.0, 0.0, ""))
            case SaveSnapshot():
                self._deliver(SnapshotSaved(request, 0, 0, 0.0, 0))
            case _ if host is None:
                self._deliver(ModelUnloaded(request, 0, resident_memory()))
            case _:  # whatever model is still there; the window is told which
                self._deliver(_loaded(request, host.model))

    def _fail(self, command: Command, error: EngineError) -> None:
        log.info("request %d failed: %s", command.request, error)
        if isinstance(command, LoadModel) and self._host is None:
            self._deliver(ModelUnloaded(command.request, 0, resident_memory()))
            if self._is_cancelled(command.request):
                return  # given up anyway: that was the last word
        self._deliver(Failed(command.request, str(error), error.remedy))


def _loaded(request: int, model: LoadedModel) -> ModelLoaded:
    return ModelLoaded(
        request=request,
        path=model.path,
        name=model.name,
        architecture=model.config.architecture,
        layout=model.layout,
        parameters=model.parameters,
        context=model.plan.context,
        file_bytes=model.file_bytes,
        memory_bytes=model.plan.total_bytes,
        kernels=model.backends,
        slow=model.slow,
        template=model.template.built_in,
        vocabulary=model.vocabulary,
        seconds=model.seconds,
        resident_bytes=resident_memory(),
        cache=model.cache,
    )


def _stamps(path: Path) -> tuple[Stamp, ...]:
    """Of a model's files; none where one is missing, which the loader tells better."""
    try:
        return stamps(model_parts(path))
    except OSError:
        return ()


def _nothing_said(request: int, context_used: int) -> Finished:
    return Finished(
        request,
        FinishReason.CANCELLED,
        prompt_tokens=0,
        reused_tokens=0,
        generated_tokens=0,
        prefill_seconds=0.0,
        decode_seconds=0.0,
        context_used=context_used,
    )


def _unexpected(error: BaseException) -> EngineError:
    log.error("unexpected fault", exc_info=error)
    return EngineError(
        f"The engine hit a fault of its own ({type(error).__name__}: {error}).",
        "Try again; if it comes back, the log has the details.",
    )


def _load_torch_library() -> None:
    """Map torch's largest library without holding the interpreter lock, then import torch.

    `import torch` alone would freeze the window for a third of a second while it links.
    """
    if sys.platform == "linux" and (spec := importlib.util.find_spec("torch")) and spec.origin:
        library = Path(spec.origin).parent / "lib" / "libtorch_cpu.so"
        if library.exists():
            dlopen = ctypes.CDLL(None).dlopen
            dlopen.restype = ctypes.c_void_p
            dlopen(str(library).encode(), 0x2 | 0x100)  # RTLD_NOW | RTLD_GLOBAL
    import torch

    torch.set_grad_enabled(False)
