"""Loop: the engine's thread, which starts requests in the order they came and delivers their events.

Heavy modules are imported inside functions that run on the thread, so the window paints before
torch is loaded. Only this module catches every exception, including panics of Rust libraries, which
are not `Exception`: it logs them, delivers `Failed` and keeps the thread running.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from engine.cancelled_events import cancelled
from engine.core.handle import RequestHandle
from engine.errors import Cancelled, EngineError, PromptTooLong, RequestError
from engine.loading.identity import Stamp, stamps
from engine.loading.library import model_parts
from engine.machine import torch_library
from engine.machine.device import memory_error, resident_memory, trim_heap
from engine.messages import (
    Chat,
    CheckConstraint,
    ContextPolicy,
    CountTokens,
    DevicesFound,
    Embed,
    Event,
    Failed,
    FindDevices,
    Load,
    LoadProgress,
    Metrics,
    MetricsRead,
    ModelMoved,
    ModelUnloaded,
    Rerank,
    Restore,
    Save,
    Score,
    SetAdapters,
    SetDraft,
    Unload,
)
from engine.state.disk.folder import snapshots_folder, snapshots_size

if TYPE_CHECKING:
    from engine.model_session import ModelSession
    from engine.state.disk.saver import Saver
    from engine.state.disk.store import PageStore

log = logging.getLogger(__name__)

Job = Generator[Event | None, None, None]  # of a request; None: it goes on after the next pass

_POLL_SECONDS = 0.005  # between two looks at work on other threads


class Loop:
    """Runs the requests of `engine.client.Engine`, which says what clients may rely on.

    Answers are generated together, and other requests are carried out between their passes. A model
    is loaded, and a conversation saved, only after the answers before have ended; a model is not
    replaced, and nothing else started, while a conversation is restored.
    """

    def __init__(self, notify: Callable[[Event], None]) -> None:
        """`notify` is given the events that belong to no request."""
        self._notify = notify
        self._thread: threading.Thread | None = None
        self._queue: deque[RequestHandle] = deque()
        self._wake = threading.Condition()
        self._running: RequestHandle | None = None  # being started or carried out at once
        self._deferred: list[RequestHandle] = []  # saves, until what they wait for has ended
        self._jobs: dict[int, tuple[RequestHandle, Job]] = {}  # by request id
        self._stopping = False
        self._host: ModelSession | None = None
        self._load_request: Load | None = None  # that loaded the model
        self._saver: Saver | None = None
        self._snapshots: PageStore | None = None

    def start(self) -> None:
        """Start the thread and return at once; it first runs the requests added before."""
        assert self._thread is None, "the engine was started twice"
        if self._stopping:
            return
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def add(self, handle: RequestHandle) -> None:
        """Queue a request, from any thread; it is dropped after `stop`."""
        with self._wake:
            if not self._stopping:
                self._queue.append(handle)
                self._wake.notify()

    def stop(self) -> None:
        """Cancel all requests but saves, which are waited for, and join the thread."""
        with self._wake:
            self._stopping = True
            for handle in self._unanswered():
                if not isinstance(handle.request, Save):
                    handle.cancel()
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # --- the engine's thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            torch_library.load()
        except BaseException:  # every request imports torch again and reports the failure
            log.exception("torch cannot be loaded")
        while self._has_work():
            try:
                if (handle := self._next()) is not None:
                    self._start(handle)
                self._advance()
            except BaseException as fault:  # noqa: BLE001  every request must get its final event
                self._fail_all(fault)
        self._shut_down()

    def _start(self, handle: RequestHandle) -> None:
        """Carry out a request, or make it a job that goes on beside others."""
        job: Job | None = None
        with self._outcome(handle):
            job = self._carry_out(handle)
        if job is not None:
            with self._wake:  # `stop` looks through the jobs on other threads
                self._jobs[handle.id] = handle, job
        else:
            self._mark_done(handle)

    def _advance(self) -> None:
        """Deliver the events of all jobs, then run one pass of the model for their answers."""
        for handle, job in list(self._jobs.values()):
            finished = True
            with self._outcome(handle):
                for event in job:
                    if event is None:  # it goes on after the next pass
                        finished = False
                        break
                    handle.deliver(event)
            if finished:
                job.close()  # if `deliver` raised, the answer is not generated any further
                self._mark_done(handle)
        if self._host is not None and self._host.is_busy:
            self._host.step(self._has_request)
            if (fault := self._host.device_fault) is not None:
                self._move(fault)

    @contextmanager
    def _outcome(self, handle: RequestHandle) -> Iterator[None]:
        """Report an exception as the request's final event."""
        try:
            yield
        except Cancelled:
            handle.deliver(cancelled(handle.id, handle.request, self._host))
        except EngineError as error:
            self._fail(handle, error)
        except BaseException as fault:  # noqa: BLE001  a panic is no Exception
            from engine.core.failover_state import without_frames

            error = memory_error(fault) or _unexpected(fault)
            is_load = isinstance(handle.request, Load)
            if is_load or not (self._host and self._host.can_move(fault)):
                self._fail(handle, error)
                return
            self._move(without_frames(fault))
            self._fail(handle, _moved_error(error))

    def _has_work(self) -> bool:
        with self._wake:
            return not self._stopping or bool(self._queue or self._jobs or self._deferred)

    def _unanswered(self) -> list[RequestHandle]:
        """Running and queued requests; the caller must hold the lock."""
        running = [] if self._running is None else [self._running]
        running += [handle for handle, _ in self._jobs.values() if handle is not self._running]
        return [*running, *self._deferred, *self._queue]

    def _mark_done(self, handle: RequestHandle) -> None:
        with self._wake:
            self._running = None
            self._jobs.pop(handle.id, None)

    def _fail_all(self, fault: BaseException) -> None:
        """Fail running and queued requests after an exception outside the handling of one."""
        error = _unexpected(fault)
        with self._wake:
            unanswered = self._unanswered()
            self._queue.clear()
            self._deferred.clear()
            self._jobs.clear()
        if self._host is not None:
            self._host.stop(error)
        for handle in unanswered:
            try:
                self._fail(handle, error)
            except BaseException:
                log.exception("%s cannot be answered", handle)
            self._mark_done(handle)

    def _shut_down(self) -> None:
        """Wait for the saver and unload the model."""
        try:
            self._wait_for_saver()
            self._unload()
        except BaseException:
            log.exception("the engine did not release all memory")

    def _next(self) -> RequestHandle | None:
        """The next request, if it can start now; waits for one if there is nothing else to do."""
        with self._wake:
            while not (self._queue or self._deferred or self._jobs or self._stopping):
                self._wake.wait()
            is_busy = self._host is not None and self._host.is_busy
            for handle in self._deferred:
                if self._can_start(handle):
                    self._deferred.remove(handle)
                    self._running = handle
                    return handle
            if self._queue:
                handle = self._queue[0]
                if self._can_start(handle):
                    self._running = self._queue.popleft()
                    return self._running
                if isinstance(handle.request, Save):  # those after it need not wait
                    self._queue.popleft()
                    self._deferred.append(handle)
                    return None
            if (self._jobs or self._deferred) and not is_busy:  # their work is on other threads
                self._wake.wait(_POLL_SECONDS)
            return None

    def _has_request(self) -> bool:
        """Whether a queued answer, not one in the background, can start now."""
        with self._wake:
            for handle in self._queue:
                if not self._can_start(handle):
                    return False
                if isinstance(handle.request, Chat) and not handle.request.background:
                    return True
        return False

    def _can_start(self, handle: RequestHandle) -> bool:
        """Whether a request may run beside the jobs; those after it wait, except after a save.

        A model is replaced when the answers before have ended, and an answer is saved when it has,
        and the save before too; a conversation is restored before anything else begins.
        """
        jobs = [(job.id, job.request) for job, _ in self._jobs.values()]
        match handle.request:
            case Load() | Unload() | SetDraft():
                return not jobs and not self._deferred
            case Save() if handle.is_cancelled:
                return True
            case Save() if self._saver is not None and self._saver.is_saving:
                return False
            case Save(conversation=name, answer=answer):
                answers = [(number, job) for number, job in jobs if isinstance(job, Chat)]
                if answer:
                    return not any(number == answer for number, _ in answers)
                return not any(job.conversation == name for _, job in answers)
            case _:
                return not any(isinstance(job, Restore) for _, job in jobs)

    def _carry_out(self, handle: RequestHandle) -> Job | None:
        """Carry out a request up to its final event, or return the job that does."""
        match request := handle.request:
            case Load():
                self._load(request, handle)
            case FindDevices():
                from engine.loading.device_choice import found

                handle.deliver(DevicesFound(handle.id, found()))
            case Unload():
                handle.deliver(self._unload_measured(handle.id))
            case Chat():
                handle.checkpoint()
                return self._loaded_host().generate(request, handle)
            case SetAdapters():
                handle.checkpoint()
                handle.deliver(self._loaded_host().set_adapters(request, handle))
            case SetDraft():
                handle.checkpoint()
                handle.deliver(self._loaded_host().set_draft(request, handle))
            case Restore():
                handle.checkpoint()
                return self._loaded_host().load_snapshot(request, handle)
            case Save():
                handle.checkpoint()
                if (saved := self._loaded_host().save_snapshot(request, handle)) is not None:
                    handle.deliver(saved)
            case CountTokens():
                handle.checkpoint()
                handle.deliver(self._loaded_host().count_tokens(request, handle))
            case Embed():
                handle.checkpoint()
                return self._loaded_host().embed(request, handle)
            case Rerank():
                handle.checkpoint()
                return self._loaded_host().rerank(request, handle)
            case Score():
                handle.checkpoint()
                return self._loaded_host().score(request, handle)
            case CheckConstraint():
                from engine.frontend.constraints.checking import check

                grammars = self._host and self._host.grammars
                return check(request.constraint, handle.id, grammars, handle.checkpoint)
            case Metrics():
                if self._host is not None:
                    return self._host.metrics(handle)
                memory, disk = resident_memory(), snapshots_size()
                found = MetricsRead(handle.id, resident_bytes=memory, saved_page_bytes=disk)
                handle.deliver(found)
            case _:
                assert_never(request)
        return None

    def _load(self, request: Load, handle: RequestHandle) -> None:
        from engine.loading.loader import load
        from engine.loading.measured import write_weights
        from engine.model_session import ModelSession
        from engine.state.disk.saver import Saver
        from engine.state.disk.store import PageStore

        before = 0

        def unload() -> None:
            nonlocal before
            self._wait_for_saver(handle.checkpoint)  # it still reads the cache of the old session
            self._unload()
            before = resident_memory()

        handle.checkpoint()
        files = _stamps(request.path)  # taken before the files are read
        model = load(
            request.path,
            device=request.device,
            backend=request.backend,
            parts=request.placement,
            context=request.context,
            threads=request.threads,
            cache=request.cache,
            embeddings=request.embeddings,
            tokenizer_file=request.tokenizer,
            memory_bytes=request.memory_bytes,
            reclaimable=0 if self._host is None else self._host.memory_bytes,
            progress=lambda done, total: handle.deliver(LoadProgress(handle.id, done, total)),
            checkpoint=handle.checkpoint,
            before_weights=unload,
        )
        if self._saver is None or self._snapshots is None:
            self._saver = Saver()
            self._snapshots = PageStore(snapshots_folder())
        plan = model.plan.with_weights(resident_memory() - before)
        if plan is not model.plan:
            write_weights(files, plan.weights_bytes)
            model = replace(model, plan=plan)
        self._host = ModelSession(model, files, self._snapshots, self._saver)
        self._load_request = request
        del model  # the host alone has it, and can free it
        if (fault := self._host.prepare()) is not None:
            self._move(fault)
        handle.deliver(self._loaded_host().loaded(handle.id))

    def _move(self, fault: BaseException) -> None:
        """After the device of the model failed: go on with the processor, or without a model."""
        from engine.device_failover import move_to_processor

        host, request = self._host, self._load_request
        assert host is not None
        assert request is not None
        self._host = None
        if move_to_processor(host, request, fault, self._check_stopping, _unexpected):
            self._host = host
            self._notify(ModelMoved(0, host.loaded(0)))
        else:
            self._notify(ModelUnloaded(0, 0, resident_memory()))

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

    def _check_stopping(self) -> None:
        if self._stopping:
            raise Cancelled

    def _fail(self, handle: RequestHandle, error: EngineError) -> None:
        log.info("%s failed: %s", handle, error)
        request = handle.request
        if isinstance(request, FindDevices):  # then there is the processor alone
            handle.deliver(DevicesFound(handle.id, ()))
            return
        if isinstance(request, Load) and self._host is None:
            handle.deliver(ModelUnloaded(handle.id, 0, resident_memory()))
            if handle.is_cancelled:
                return  # the load was cancelled: ModelUnloaded is its final event
        full = isinstance(error, PromptTooLong) and (
            isinstance(request, Chat) and request.policy is ContextPolicy.STOP
        )
        handle.deliver(Failed(handle.id, str(error), error.remedy, full, error.fault))


def _stamps(path: Path) -> tuple[Stamp, ...]:
    """Stamps of a model's files; empty if one is missing, which the loader reports."""
    try:
        return stamps(model_parts(path))
    except OSError:
        return ()


def _moved_error(error: EngineError) -> EngineError:
    """The error of a request during which the device of the model failed."""
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
