"""Engine: the thread that runs commands from a queue and delivers events.

Heavy modules are imported inside functions that run on the engine thread, so the window paints
before torch is loaded. Only this module catches every exception, including panics of Rust
libraries, which are not `Exception`: it logs them, delivers `Failed` and keeps the thread running.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from engine.cancelled_events import cancelled
from engine.errors import Cancelled, EngineError, PromptTooLong, RequestError
from engine.loading.identity import Stamp, stamps
from engine.loading.library import model_parts
from engine.machine import torch_library
from engine.machine.device import memory_error, resident_memory, trim_heap
from engine.messages import (
    Cancel,
    CheckConstraint,
    Command,
    ContextPolicy,
    CountTokens,
    DevicesFound,
    Embed,
    Event,
    Failed,
    FindDevices,
    Generate,
    LoadModel,
    LoadProgress,
    LoadSnapshot,
    MetricsRead,
    ModelMoved,
    ModelUnloaded,
    ReadMetrics,
    Rerank,
    SaveSnapshot,
    SetAdapters,
    SetDraft,
    UnloadModel,
)
from engine.state.disk.folder import snapshots_folder, snapshots_size

if TYPE_CHECKING:
    from engine.model_session import ModelSession
    from engine.state.disk.saver import Saver
    from engine.state.disk.store import PageStore

log = logging.getLogger(__name__)

Job = Generator[Event | None, None, None]  # of a command; None: it goes on after the next pass

_POLL_SECONDS = 0.005  # between two looks at work on other threads


class Engine:
    """The engine thread: starts commands in the order they were sent.

    Answers are generated together, and other commands are carried out between their passes. A
    model is loaded, and a conversation saved, only after the answers before have ended; a model
    is not replaced, and nothing else started, while a conversation is restored.

    `deliver` is called once per event, on the engine thread; only the event that ends SaveSnapshot
    is delivered on the thread that writes the file. It must neither block nor raise. Every command
    except Cancel ends with exactly one final event, the last that carries its request id:

    - LoadModel: ModelLoaded, or Failed; ModelUnloaded precedes Failed when no model remains.
      When cancelled: ModelUnloaded, or ModelLoaded for the previous model if it is still loaded.
    - UnloadModel: ModelUnloaded.
    - FindDevices: DevicesFound, without devices if they cannot be found.
    - Generate: Finished, or Failed. Of several answers each has a Finished event when it ends; the
      final event is the one with `last`, and Failed ends those that have not ended.
    - SetAdapters: AdaptersSet, or Failed; then the stack is unchanged. When cancelled: AdaptersSet
      for the unchanged stack.
    - SetDraft: DraftSet, or Failed; then there is no draft model. When cancelled: DraftSet.
    - LoadSnapshot: SnapshotLoaded, or Failed. When cancelled: SnapshotLoaded with 0 tokens.
    - SaveSnapshot: SnapshotSaved, or Failed; events of later commands may come first. With
      nothing new to save, and when cancelled before it starts: SnapshotSaved with 0 tokens.
    - CountTokens: TokensCounted, or Failed. When cancelled: TokensCounted with 0 tokens.
    - ReadMetrics: MetricsRead, or Failed.
    - Embed: Embedded, or Failed. When cancelled: Embedded without vectors.
    - Rerank: Reranked, or Failed. When cancelled: Reranked without scores.
    - CheckConstraint: ConstraintChecked, or Failed. When cancelled: without a fault.

    Two events belong to no command and have request 0. ModelMoved: the model's device failed, the
    model was loaded again on the processor, and running answers continue. ModelUnloaded: that
    failed too.

    Cancel has no event; one for a request that is neither running nor queued does nothing.
    """

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        self._deliver = deliver
        self._thread: threading.Thread | None = None
        self._commands: deque[Command] = deque()
        self._wake = threading.Condition()
        self._running: Command | None = None  # being started or carried out at once
        self._deferred: list[SaveSnapshot] = []  # until what they wait for has ended
        self._jobs: dict[int, tuple[Command, Job]] = {}  # by request id
        self._arrivals: dict[int, float] = {}  # times of queued Generate commands
        self._cancelled: set[int] = set()  # request ids of running and queued commands
        self._stopping = False
        self._host: ModelSession | None = None
        self._command: LoadModel | None = None  # that loaded the model
        self._saver: Saver | None = None
        self._snapshots: PageStore | None = None

    def start(self) -> None:
        """Start the thread and return at once; it first runs the commands sent before."""
        assert self._thread is None, "the engine was started twice"
        if self._stopping:
            return
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        """Queue a command, from any thread; `Cancel` takes effect at once.

        Commands sent after `stop` are dropped without an event.
        """
        with self._wake:
            if self._stopping:
                return
            if not isinstance(command, Cancel):
                self._commands.append(command)
                if isinstance(command, Generate):
                    self._arrivals[command.request] = time.perf_counter()
                self._wake.notify()
            elif any(command.request == unanswered.request for unanswered in self._unanswered()):
                self._cancelled.add(command.request)

    def stop(self) -> None:
        """Cancel running and queued commands and join the thread; it cannot be restarted.

        SaveSnapshot commands are still carried out and waited for. May be called more than once,
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
            torch_library.load()
        except BaseException:  # every command imports torch again and reports the failure
            log.exception("torch cannot be loaded")
        while self._has_work():
            try:
                if (command := self._next()) is not None:
                    self._start(command)
                self._advance()
            except BaseException as fault:  # noqa: BLE001  every command must get its final event
                self._fail_all(fault)
        self._shut_down()

    def _start(self, command: Command) -> None:
        """Carry out a command, or make it a job that goes on beside others."""
        job: Job | None = None
        with self._outcome(command):
            job = self._handle(command)
        if job is not None:
            with self._wake:  # `send` looks through the jobs on other threads
                self._jobs[command.request] = command, job
        else:
            self._mark_done(command)

    def _advance(self) -> None:
        """Deliver the events of all jobs, then run one pass of the model for their answers."""
        for command, job in list(self._jobs.values()):
            finished = True
            with self._outcome(command):
                for event in job:
                    if event is None:  # it goes on after the next pass
                        finished = False
                        break
                    self._deliver(event)
            if finished:
                job.close()  # if `deliver` raised, the answer is not generated any further
                self._mark_done(command)
        if self._host is not None and self._host.is_busy:
            self._host.step(self._has_request)
            if (fault := self._host.device_fault) is not None:
                self._move(fault)

    @contextmanager
    def _outcome(self, command: Command) -> Iterator[None]:
        """Report an exception as the command's final event."""
        try:
            yield
        except Cancelled:
            self._deliver(cancelled(command, self._host))
        except EngineError as error:
            self._fail(command, error)
        except BaseException as fault:  # noqa: BLE001  a panic is no Exception
            from engine.core.suspended import without_frames

            error = memory_error(fault) or _unexpected(fault)
            if isinstance(command, LoadModel) or not (self._host and self._host.can_move(fault)):
                self._fail(command, error)
                return
            self._move(without_frames(fault))
            self._fail(command, _moved_error(error))

    def _has_work(self) -> bool:
        with self._wake:
            return not self._stopping or bool(self._commands or self._jobs or self._deferred)

    def _unanswered(self) -> list[Command]:
        """Running and queued commands; the caller must hold the lock."""
        running = [] if self._running is None else [self._running]
        running += [command for command, _ in self._jobs.values() if command is not self._running]
        return [*running, *self._deferred, *self._commands]

    def _mark_done(self, command: Command) -> None:
        with self._wake:
            self._running = None
            self._jobs.pop(command.request, None)
            self._arrivals.pop(command.request, None)
            self._cancelled.discard(command.request)

    def _fail_all(self, fault: BaseException) -> None:
        """Fail running and queued commands after an exception outside the handling of one."""
        error = _unexpected(fault)
        with self._wake:
            unanswered = self._unanswered()
            self._commands.clear()
            self._deferred.clear()
            self._jobs.clear()
        if self._host is not None:
            self._host.stop(error)
        for command in unanswered:
            try:
                self._fail(command, error)
            except BaseException:
                log.exception("request %d cannot be answered", command.request)
            self._mark_done(command)

    def _shut_down(self) -> None:
        """Wait for the saver and unload the model."""
        try:
            self._wait_for_saver()
            self._unload()
        except BaseException:
            log.exception("the engine did not release all memory")

    def _next(self) -> Command | None:
        """The next command, if it can start now; waits for one if there is nothing else to do."""
        with self._wake:
            while not (self._commands or self._deferred or self._jobs or self._stopping):
                self._wake.wait()
            is_busy = self._host is not None and self._host.is_busy
            for command in self._deferred:
                if self._can_start(command):
                    self._deferred.remove(command)
                    self._running = command
                    return command
            if self._commands:
                command = self._commands[0]
                if self._can_start(command):
                    self._running = self._commands.popleft()
                    return self._running
                if isinstance(command, SaveSnapshot):  # those after it need not wait
                    self._commands.popleft()
                    self._deferred.append(command)
                    return None
            if (self._jobs or self._deferred) and not is_busy:  # their work is on other threads
                self._wake.wait(_POLL_SECONDS)
            return None

    def _has_request(self) -> bool:
        """Whether a queued answer, not one in the background, can start now."""
        with self._wake:
            for command in self._commands:
                if not self._can_start(command):
                    return False
                if isinstance(command, Generate) and not command.background:
                    return True
        return False

    def _can_start(self, command: Command) -> bool:
        """Whether a command may run beside the jobs; those after it wait, except after a save.

        A model is replaced when the answers before have ended, and an answer is saved when it has,
        and the save before too; a conversation is restored before anything else begins.
        """
        jobs = [job for job, _ in self._jobs.values()]
        match command:
            case LoadModel() | UnloadModel() | SetDraft():
                return not jobs and not self._deferred
            case SaveSnapshot(request=request) if request in self._cancelled:
                return True
            case SaveSnapshot() if self._saver is not None and self._saver.is_saving:
                return False
            case SaveSnapshot(conversation=name, answer=answer):
                answers = [job for job in jobs if isinstance(job, Generate)]
                if answer:
                    return not any(job.request == answer for job in answers)
                return not any(job.conversation == name for job in answers)
            case _:
                return not any(isinstance(job, LoadSnapshot) for job in jobs)

    def _handle(self, command: Command) -> Job | None:
        """Carry out a command up to its final event, or return the job that does."""
        checkpoint = self._checkpoint(command)
        match command:
            case LoadModel():
                self._load(command, checkpoint)
            case FindDevices():
                from engine.loading.device_choice import found

                self._deliver(DevicesFound(command.request, found()))
            case UnloadModel():
                self._deliver(self._unload_measured(command.request))
            case Generate():
                checkpoint()
                cancelled = partial(self._is_cancelled, command.request)
                arrived = self._arrivals.pop(command.request, time.perf_counter())
                return self._loaded_host().generate(command, checkpoint, cancelled, arrived)
            case SetAdapters():
                checkpoint()
                self._deliver(self._loaded_host().set_adapters(command, checkpoint))
            case SetDraft():
                checkpoint()
                self._deliver(self._loaded_host().set_draft(command, checkpoint))
            case LoadSnapshot():
                checkpoint()
                return self._loaded_host().load_snapshot(command, checkpoint)
            case SaveSnapshot():
                checkpoint()
                if (saved := self._loaded_host().save_snapshot(command, checkpoint)) is not None:
                    self._deliver(saved)
            case CountTokens():
                checkpoint()
                self._deliver(self._loaded_host().count_tokens(command, checkpoint))
            case Embed():
                checkpoint()
                return self._loaded_host().embed(command, checkpoint)
            case Rerank():
                checkpoint()
                return self._loaded_host().rerank(command, checkpoint)
            case CheckConstraint():
                from engine.frontend.constraints.checking import check

                return check(command, self._host and self._host.grammars, checkpoint)
            case ReadMetrics():
                if self._host is not None:
                    return self._host.metrics(command.request, checkpoint)
                memory, disk = resident_memory(), snapshots_size()
                found = MetricsRead(command.request, resident_bytes=memory, saved_page_bytes=disk)
                self._deliver(found)
            case Cancel():
                pass  # handled in `send`
            case _:
                assert_never(command)
        return None

    def _load(self, command: LoadModel, checkpoint: Callable[[], None]) -> None:
        from engine.loading.loader import load
        from engine.loading.measured import write_weights
        from engine.model_session import ModelSession
        from engine.state.disk.saver import Saver
        from engine.state.disk.store import PageStore

        before = 0

        def unload() -> None:
            nonlocal before
            self._wait_for_saver(checkpoint)  # it still reads the cache of the old session
            self._unload()
            before = resident_memory()

        checkpoint()
        files = _stamps(command.path)  # taken before the files are read
        model = load(
            command.path,
            device=command.device,
            backend=command.backend,
            parts=command.placement,
            context=command.context,
            threads=command.threads,
            cache=command.cache,
            embeddings=command.embeddings,
            tokenizer_file=command.tokenizer,
            memory_bytes=command.memory_bytes,
            reclaimable=0 if self._host is None else self._host.memory_bytes,
            progress=lambda done, total: self._deliver(LoadProgress(command.request, done, total)),
            checkpoint=checkpoint,
            before_weights=unload,
        )
        if self._saver is None or self._snapshots is None:
            self._saver = Saver(self._deliver)
            self._snapshots = PageStore(snapshots_folder())
        plan = model.plan.with_weights(resident_memory() - before)
        if plan is not model.plan:
            write_weights(files, plan.weights_bytes)
            model = replace(model, plan=plan)
        self._host = ModelSession(model, files, self._snapshots, self._saver)
        self._command = command
        del model  # the host alone has it, and can free it
        if (fault := self._host.prepare()) is not None:
            self._move(fault)
        self._deliver(self._loaded_host().loaded(command.request))

    def _move(self, fault: BaseException) -> None:
        """After the device of the model failed: go on with the processor, or without a model."""
        from engine.device_failover import move_to_processor

        host, command = self._host, self._command
        assert host is not None
        assert command is not None
        self._host = None
        if move_to_processor(host, command, fault, self._checkpoint(command), _unexpected):
            self._host = host
            self._deliver(ModelMoved(0, host.loaded(0)))
        else:
            self._deliver(ModelUnloaded(0, 0, resident_memory()))

    def _loaded_host(self) -> ModelSession:
        if self._host is None:
            raise RequestError("No model is loaded.", "Choose a model first.")
        return self._host

    def _unload_measured(self, request: int) -> ModelUnloaded:
        """Wait for the saver, unload the model and measure the memory freed."""
        before = resident_memory()
        self._wait_for_saver()
        self._unload()
        after = resident_memory()
        return ModelUnloaded(request, max(before - after, 0), after)

    def _unload(self) -> None:
        if self._host is not None:
            from kernels import backends

            self._host.close()
            self._host = None
            backends.release()
            trim_heap()

    def _wait_for_saver(self, checkpoint: Callable[[], None] = lambda: None) -> None:
        if self._host is not None:
            self._host.drop_evicted()
        if self._saver is not None:
            self._saver.wait(checkpoint)

    def _is_cancelled(self, request: int) -> bool:
        return self._stopping or request in self._cancelled

    def _checkpoint(self, command: Command) -> Callable[[], None]:
        def checkpoint() -> None:
            # Stopping the engine does not cancel a save.
            stopping = self._stopping and not isinstance(command, SaveSnapshot)
            if stopping or command.request in self._cancelled:
                raise Cancelled

        return checkpoint

    def _fail(self, command: Command, error: EngineError) -> None:
        log.info("request %d failed: %s", command.request, error)
        if isinstance(command, FindDevices):  # then there is the processor alone
            self._deliver(DevicesFound(command.request, ()))
            return
        if isinstance(command, LoadModel) and self._host is None:
            self._deliver(ModelUnloaded(command.request, 0, resident_memory()))
            if self._is_cancelled(command.request):
                return  # the load was cancelled: ModelUnloaded is its final event
        full = isinstance(error, PromptTooLong) and (
            isinstance(command, Generate) and command.policy is ContextPolicy.STOP
        )
        self._deliver(Failed(command.request, str(error), error.remedy, full, error.fault))


def _stamps(path: Path) -> tuple[Stamp, ...]:
    """Stamps of a model's files; empty if one is missing, which the loader reports."""
    try:
        return stamps(model_parts(path))
    except OSError:
        return ()


def _moved_error(error: EngineError) -> EngineError:
    """The error of a command during which the device of the model failed."""
    return EngineError(
        f"The GPU failed: {error}", "Try again: the model runs on the processor now."
    )


def _unexpected(error: BaseException) -> EngineError:
    if isinstance(error, EngineError):
        return error
    log.error("unexpected fault", exc_info=error)
    return EngineError(
        f"The engine hit an internal error ({type(error).__name__}: {error}).",
        "Try again; if it happens again, see the log for details.",
    )
