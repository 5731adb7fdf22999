"""Loop: the engine's thread, which starts requests in the order they came and delivers their events.

Heavy modules are imported inside functions that run on the thread, so the window paints before
torch is loaded. It catches every exception, including panics of Rust libraries, which are not
`Exception`: it logs them, delivers `Failed` and keeps the thread running.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from inspect import GEN_RUNNING, getgeneratorstate
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from engine.cancelled_events import cancelled
from engine.core.cancellation import Awaited
from engine.core.handle import RequestHandle
from engine.core.loop_errors import moved_error, overdue, unexpected
from engine.core.queue import Limits, RequestQueue
from engine.core.residents import Resident, Residents
from engine.errors import Cancelled, EngineError, OutOfMemory, PromptTooLong
from engine.loading.identity import Stamp, stamps
from engine.loading.library import model_parts
from engine.loading.memory import MemoryPlan
from engine.machine import torch_library
from engine.machine.device import memory_error, resident_memory, share_heap, trim_heap
from engine.messages import (
    ApplyTemplate,
    Chat,
    CheckConstraint,
    Complete,
    ComputeLogits,
    ContextPolicy,
    CountTokens,
    Detokenize,
    DevicesFound,
    Embed,
    Event,
    Failed,
    FindDevices,
    Forget,
    Load,
    LoadProgress,
    MeasureSpeed,
    Metrics,
    MetricsRead,
    ModelLoaded,
    ModelMoved,
    ModelUnloaded,
    Priority,
    Request,
    Rerank,
    Restore,
    Save,
    Score,
    SetAdapters,
    SetDraft,
    Tokenize,
    Unload,
)
from engine.state.disk.folder import snapshots_folder, snapshots_size

if TYPE_CHECKING:
    from engine.core.scheduler import Scheduler
    from engine.state.disk.saver import Saver
    from engine.state.disk.store import PageStore

log = logging.getLogger(__name__)

# Of a request. None: it goes on after the next pass, Awaited: once that is done.
Job = Generator[Event | Awaited | None, None, None]

_POLL_SECONDS = 0.005  # between two looks at work on other threads
_SHORT = 8  # a context that memory limits leaves less than this part of its pages


class _Short(Exception):
    """A model would fit better if another one were unloaded."""


class Loop:
    """Runs the requests of `engine.client.Engine`, which says what clients may rely on.

    The answers of a model are generated together, and other requests are carried out between their
    passes; `engine.core.queue` says which may begin beside others. While a model is loaded, the
    others go on between its tensors.
    """

    def __init__(
        self, notify: Callable[[Event], None], limits: Limits, folder: Path | None = None
    ) -> None:
        """`notify` is given the events that belong to no request; `folder` is that of saved
        conversations, None: the usual one.
        """
        self._notify, self._folder = notify, folder
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._queue = RequestQueue(limits)
        self._open: dict[int, RequestHandle] = {}  # begun and not ended, by id
        self._jobs: dict[int, Job] = {}  # of these, those that go on beside others
        self._awaited: dict[int, Awaited] = {}  # what a job waits for, if it is not the next pass
        self._loading: RequestHandle | None = None  # whose model is being loaded
        self._turned = 0.0  # time when the last turn during a load ended
        self._turn_seconds = 0.0  # that it took
        self._was_cancelled = False  # since the last look
        self._stopping = False
        self._residents = Residents()
        self._saver: Saver | None = None
        self._snapshots: PageStore | None = None

    @property
    def resident(self) -> tuple[ModelLoaded, ...]:
        """The loaded models, the main one first; from any thread."""
        return self._residents.facts

    def start(self) -> None:
        """Start the thread and return at once; it first runs the requests added before."""
        assert self._thread is None, "the engine was started twice"
        if self._stopping:
            return
        share_heap()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def add(self, handle: RequestHandle) -> None:
        """Queue a request, from any thread; it is dropped after `stop`. Raises Busy."""
        with self._changed:
            if not self._stopping:
                self._queue.add(handle)
                self._changed.notify()

    def wake(self) -> None:
        """A request was cancelled: look at the queue again."""
        self._was_cancelled = True
        with self._changed:
            self._changed.notify()

    def leave(self, client: str) -> None:
        """Cancel the requests of a client, from any thread."""
        with self._changed:
            for handle in self._unanswered():
                if handle.client == client:
                    handle.cancel()

    def in_the_way(self) -> list[RequestHandle]:
        """Answers for clients with a name that a queued change of the main model waits for; from
        any thread.
        """
        with self._changed:
            main, before = self._residents.main, list(self._open.values())
            for handle in self._queue.items:
                if _changes_main(handle.request, main):
                    return [one for one in before if self._is_answer_of(one, main)]
                before.append(handle)
        return []

    def _is_answer_of(self, handle: RequestHandle, main: Resident | None) -> bool:
        is_answer = isinstance(handle.request, Chat | Complete)
        return bool(handle.client) and is_answer and self._resident_of(handle) is main

    def stop(self) -> None:
        """Cancel all requests but saves, which are waited for, and join the thread."""
        with self._changed:
            self._stopping = True
            for handle in self._unanswered():
                if not isinstance(handle.request, Save):
                    handle.cancel()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # --- the engine's thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            torch_library.load()
        except BaseException:  # every request imports torch again and reports the failure
            log.exception("torch cannot be loaded")
        # Read without the lock: what is set meanwhile wakes the next turn.
        while not self._stopping or self._open or self._queue.items:
            self._turn()
        self._shut_down()

    def _turn(self) -> None:
        """Begin a request, if one can begin, and go on with the others."""
        try:
            if (handle := self._next()) is not None:
                self._start(handle)
            self._advance()
        except BaseException as fault:  # noqa: BLE001  every request must get its final event
            self._fail_all(fault)

    def _between_tensors(self, handle: RequestHandle) -> None:
        """Called often during a load: the others have half of the time. Raises Cancelled."""
        handle.checkpoint()
        if threading.current_thread() is not self._thread or not (self._queue.items or self._jobs):
            return
        began = time.perf_counter()
        if began - self._turned >= self._turn_seconds:
            self._turn()
            self._turned = time.perf_counter()
            self._turn_seconds = self._turned - began

    def _start(self, handle: RequestHandle) -> None:
        """Carry out a request, or make it a job that goes on beside others."""
        job: Job | None = None
        with self._outcome(handle):
            if handle.is_overdue:
                raise overdue()
            handle.has_begun = not isinstance(handle.request, Chat | Complete)
            job = self._carry_out(handle)
        if job is not None:
            self._jobs[handle.id] = job
            self._go_on(handle, job)
        else:
            self._mark_done(handle)

    def _advance(self) -> None:
        """Run one pass of a model for its answers, and go on with all jobs."""
        started, every = time.perf_counter(), self._residents.every
        others = self._loading is not None or len(every) > 1
        if others:
            turn = self._next_resident()
        else:
            turn = every[0] if every and every[0].session.is_busy else None
        if turn is not None:
            if (is_beside := others and self._works_beside(turn)) is not turn.is_beside:
                turn.is_beside = is_beside
                turn.session.set_beside(is_beside=is_beside)
            turn.session.step(self._has_request)
        if self._was_cancelled:  # during a pass too brief to look
            self._end_cancelled(None)
        for id, job in list(self._jobs.items()):
            if (handle := self._open.get(id)) is None:  # cancelled during the pass of another
                continue
            awaited = self._awaited.get(id)
            if awaited is not None and not awaited.done and handle.deadline is None:
                continue
            self._go_on(handle, job)
        if turn is not None and others:
            self._residents.charge(turn, time.perf_counter() - started)
        if self._loading is None:
            for one in every:
                if (fault := one.session.device_fault) is not None:
                    self._move(one, fault)

    def _end_cancelled(self, answering: Scheduler | None) -> None:
        """End what was cancelled, during a pass too, but for the answers that are in that pass.

        `answering` is their scheduler; None: no answers are in a pass.
        """
        if not self._was_cancelled:
            return
        self._was_cancelled = False
        for one in self._residents:
            one.session.drop_cancelled(answering)
        for id, job in list(self._jobs.items()):
            # One that awaits its answers ends with them; one that runs now sees it itself.
            handle = self._open[id]
            has_answers = id in self._awaited and isinstance(handle.request, Chat | Complete)
            waits = not has_answers and getgeneratorstate(job) != GEN_RUNNING
            if waits and handle.is_cancelled:
                self._cancel(handle, job)
        with self._changed:
            queued = [one for one in self._queue.items if one.is_cancelled]
        for handle in queued:
            if not isinstance(handle.request, Unload):
                with self._changed:
                    self._queue.remove(handle)
                    self._open[handle.id] = handle
                self._cancel(handle)

    def _cancel(self, handle: RequestHandle, job: Job | None = None) -> None:
        """End a cancelled request, whose job waits for its turn."""
        try:
            with self._outcome(handle):
                if job is not None:
                    job.throw(Cancelled())
                raise Cancelled
        except BaseException:
            log.exception("%s cannot be answered", handle)
        self._mark_done(handle)

    def _go_on(self, handle: RequestHandle, job: Job) -> None:
        """Deliver the events that a job has now, up to the final one."""
        finished = True
        with self._outcome(handle):
            if handle.is_overdue:
                raise overdue()
            for event in job:
                if event is None or isinstance(event, Awaited):
                    finished = False
                    if event is not None:
                        self._awaited[handle.id] = event
                    break
                handle.deliver(event)
        if finished:
            job.close()  # if `deliver` raised, the answer is not generated any further
            self._mark_done(handle)

    def _next_resident(self) -> Resident | None:
        """The model that runs the next pass."""
        urgent, foreground = set[Path](), set[Path]()
        for id in self._jobs:
            handle = self._open[id]
            if (one := self._resident_of(handle)) is None:
                continue
            if handle.priority is not Priority.BACKGROUND:
                foreground.add(one.path)
            if handle.priority is Priority.WINDOW and not handle.has_answer:
                urgent.add(one.path)
        every = {one.path for one in self._residents}
        return self._residents.next(frozenset(urgent), frozenset(every - foreground))

    def _works_beside(self, turn: Resident) -> bool:
        """Whether another model has passes to run, or is being loaded."""
        others = (one for one in self._residents if one is not turn)
        return self._loading is not None or any(one.session.is_busy for one in others)

    def _resident_of(self, handle: RequestHandle) -> Resident | None:
        """The loaded model that a request is for."""
        request = handle.request
        if isinstance(request, Load | FindDevices):
            return None
        return self._residents.find(request.model)

    @contextmanager
    def _outcome(self, handle: RequestHandle) -> Iterator[None]:
        """Report an exception as the request's final event."""
        one = self._resident_of(handle)
        try:
            yield
        except Cancelled:
            host = self._residents.main if isinstance(handle.request, Load) else one
            handle.deliver(cancelled(handle.id, handle.request, host and host.session))
        except EngineError as error:
            self._fail(handle, error)
        except BaseException as fault:  # noqa: BLE001  a panic is no Exception
            from engine.core.failover_state import without_frames

            error = memory_error(fault) or unexpected(fault)
            if one is None or self._loading is not None or not one.session.can_move(fault):
                self._fail(handle, error)
                return
            self._move(one, without_frames(fault))
            self._fail(handle, moved_error(error))

    def _unanswered(self) -> list[RequestHandle]:
        """Running and queued requests; the caller must hold the lock."""
        return [*self._open.values(), *self._queue.items]

    def _mark_done(self, handle: RequestHandle) -> None:
        with self._changed:
            self._jobs.pop(handle.id, None)
            self._awaited.pop(handle.id, None)
            self._open.pop(handle.id, None)
            self._queue.on_end(handle, time.perf_counter() - handle.arrived)

    def _fail_all(self, fault: BaseException) -> None:
        """Fail running and queued requests, but for a load that goes on, after an exception outside
        the handling of one.
        """
        error = unexpected(fault)
        with self._changed:
            unanswered = [one for one in self._unanswered() if one is not self._loading]
            self._queue.clear()
            self._jobs.clear()
            self._awaited.clear()
        for one in self._residents:
            one.session.stop(error)
        for handle in unanswered:
            try:
                self._fail(handle, error)
            except BaseException:
                log.exception("%s cannot be answered", handle)
            self._mark_done(handle)

    def _shut_down(self) -> None:
        """Wait for the saver and unload all models."""
        try:
            self._wait_for_saver()
            for one in self._residents:
                self._unload(one)
        except BaseException:
            log.exception("the engine did not release all memory")

    def _next(self) -> RequestHandle | None:
        """The next request, if one can begin now; waits for one if there is nothing else to do."""
        with self._changed:
            queued = self._queue.items
            while not (self._open or queued or self._stopping):
                self._changed.wait()
            found = self._find_next() if queued else None
            if found is not None:
                self._queue.remove(found)
                self._open[found.id] = found
                return found
            has_work = self._open or queued
            goes_on = self._loading is not None or self._awaited or self._residents.is_busy
            if has_work and not goes_on:
                self._changed.wait(_POLL_SECONDS)  # the work is on other threads
            return None

    def _find_next(self) -> RequestHandle | None:
        main = self._residents.main
        resident = [one.path for one in self._residents]
        running = list(self._open.values())
        return self._queue.next(running, main and main.path, resident, self._is_ready)

    def _is_ready(self, handle: RequestHandle) -> bool:
        """Whether what a save waits for is done: the answer, and the save before."""
        request = handle.request
        if not isinstance(request, Save):
            return True
        if self._saver is not None and self._saver.is_saving:
            return False
        return request.answer not in self._open and not self._queue.has(request.answer)

    def _has_request(self) -> bool:
        """Whether a queued answer, not one in the background, can begin now."""
        with self._changed:
            found = self._find_next() if self._queue.items else None
        return (
            found is not None
            and isinstance(found.request, Chat | Complete)
            and found.priority < Priority.BACKGROUND
        )

    def _carry_out(self, handle: RequestHandle) -> Job | None:
        """Carry out a request up to its final event, or return the job that does."""
        request = handle.request
        match request:
            case Load():
                self._load(request, handle)
                return None
            case FindDevices():
                from engine.loading.device_choice import found

                handle.deliver(DevicesFound(handle.id, found()))
                return None
            case Unload():
                handle.deliver(self._unload_measured(handle.id, request.model))
                return None
            case CheckConstraint():
                from engine.frontend.constraints.checking import check

                one = self._residents.find(request.model)
                grammars = one and one.session.grammars
                return check(request.constraint, handle.id, grammars, handle.checkpoint)
            case Metrics() if not self._residents and request.model is None:
                memory, disk = resident_memory(), snapshots_size()
                handle.deliver(MetricsRead(handle.id, resident_bytes=memory, saved_page_bytes=disk))
                return None
            case _:
                handle.checkpoint()
                session = self._residents.get(request.model).session
        match request:
            case Chat() | Complete():
                return session.generate(request, handle)
            case SetAdapters():
                handle.deliver(session.set_adapters(request, handle))
            case SetDraft():
                with self._loads(handle):
                    found = session.set_draft(
                        request, handle.id, lambda: self._between_tensors(handle)
                    )
                handle.deliver(found)
            case Restore():
                return session.load_snapshot(request, handle)
            case Forget():
                handle.deliver(session.forget(request, handle))
            case Save():
                return session.save_snapshot(request, handle)
            case CountTokens() | Tokenize() | Detokenize() | ApplyTemplate():
                return session.read_text(request, handle)
            case Embed() | Rerank() | Score() | ComputeLogits():
                return session.read_given(request, handle)
            case MeasureSpeed():
                return session.measure_speed(request, handle)
            case Metrics():
                return session.metrics(handle)
            case _:
                assert_never(request)
        return None

    # --- models ---------------------------------------------------------------------------------

    def _load(self, request: Load, handle: RequestHandle) -> None:
        """Load a model in place of the main one, or beside it, if it is not there already."""
        handle.checkpoint()
        if request.beside and (one := self._residents.find(request.path)) is not None:
            handle.deliver(one.session.loaded(handle.id, beside=one is not self._residents.main))
            return
        with self._loads(handle):
            while True:
                try:
                    loaded = self._loaded(request, handle)
                    break
                except (_Short, OutOfMemory):
                    if (idle := self._idle_beside()) is None:
                        raise
                    self._notify(self._unloaded(0, idle))
        if (fault := loaded.session.prepare()) is not None:
            self._move(loaded, fault)
        facts = self._residents.get(request.path if request.beside else None).session
        handle.deliver(facts.loaded(handle.id, beside=request.beside))

    @contextmanager
    def _loads(self, handle: RequestHandle) -> Iterator[None]:
        """A request loads a model, and others go on between its tensors."""
        self._loading, self._turned = handle, time.perf_counter()
        try:
            yield
        finally:
            self._loading = None

    def _loaded(self, request: Load, handle: RequestHandle) -> Resident:
        """Load a model. Raises _Short if it would fit better without one that is idle."""
        from engine.loading.loader import load
        from engine.loading.measured import write_weights
        from engine.model_session import ModelSession
        from engine.state.disk.saver import Saver
        from engine.state.disk.store import PageStore

        residents, before = self._residents, 0
        replaced = [one for one in residents if one.path == request.path]
        if not request.beside and residents.main is not None and residents.main not in replaced:
            replaced.append(residents.main)

        def planned(plan: MemoryPlan) -> None:
            is_cut = not request.context and plan.left_bytes < plan.cache_bytes // _SHORT
            if request.beside and (plan.offloading or is_cut) and self._idle_beside():
                raise _Short

        def unload() -> None:
            nonlocal before
            # It still reads the cache of the old session.
            self._wait_for_saver(lambda: self._between_tensors(handle))
            for one in replaced:
                self._unload(one)
            before = resident_memory()

        files = _stamps(request.path)  # taken before the files are read
        model = load(
            request.path,
            device=request.device,
            backend=request.backend,
            parts=request.placement,
            context=request.context,
            threads=None if request.beside and not request.threads else request.threads,
            cache=request.cache,
            embeddings=request.embeddings,
            ids_only=request.ids_only,
            sees=True,
            encoder=request.encoder,
            tokenizer_file=request.tokenizer,
            template=request.template,
            parallel=request.parallel,
            memory_bytes=request.memory_bytes,
            reclaimable=residents.reclaimable(replaced),
            kept=residents.kept(replaced),
            planned=planned,
            progress=lambda done, total: handle.deliver(LoadProgress(handle.id, done, total)),
            checkpoint=lambda: self._between_tensors(handle),
            before_weights=unload,
        )
        if self._saver is None or self._snapshots is None:
            self._saver = Saver()
            self._snapshots = PageStore(self._folder or snapshots_folder())
        # Beside others, their caches may have grown meanwhile.
        plan = model.plan if residents else model.plan.with_weights(resident_memory() - before)
        if plan is not model.plan:
            write_weights(files, plan.weights_bytes)
            model = replace(model, plan=plan)
        left = model.plan.left_bytes
        session = ModelSession(model, files, self._snapshots, self._saver, self._end_cancelled)
        made = Resident(session, request)
        del model  # the session alone has it, and can free it
        residents.add(made)
        residents.share_spare(left)
        return made

    def _idle_beside(self) -> Resident | None:
        """The model beside the main one that was idle longest."""
        with self._changed:
            used = [self._resident_of(handle) for handle in self._unanswered()]
        return next((one for one in self._residents.beside() if one not in used), None)

    def _move(self, one: Resident, fault: BaseException) -> None:
        """After the device of a model failed: go on with the processor, or without the model."""
        from engine.device_failover import move_to_processor

        beside = one is not self._residents.main
        self._residents.remove(one)
        if move_to_processor(one.session, one.request, fault, self._check_stopping, unexpected):
            self._residents.add(one)
            self._notify(ModelMoved(0, one.session.loaded(0, beside=beside)))
        else:
            self._notify(ModelUnloaded(0, 0, resident_memory(), one.path))

    def _unload_measured(self, request: int, path: Path | None) -> ModelUnloaded:
        """Unload a model, if it is loaded, and measure the memory freed."""
        if (one := self._residents.find(path)) is not None:
            return self._unloaded(request, one)
        return ModelUnloaded(request, 0, resident_memory(), path)

    def _unloaded(self, request: int, one: Resident) -> ModelUnloaded:
        """Wait for the saver, unload a model and measure the memory freed."""
        before = resident_memory()
        self._wait_for_saver()
        self._unload(one)
        after = resident_memory()
        return ModelUnloaded(request, max(before - after, 0), after, one.path)

    def _unload(self, one: Resident) -> None:
        from kernels import backends

        self._residents.remove(one)
        one.session.close()
        del one.session  # which others that hold `one` would keep in memory
        self._residents.share_all()
        backends.release()
        trim_heap()

    def _wait_for_saver(self, checkpoint: Callable[[], None] = lambda: None) -> None:
        for one in self._residents:
            one.session.drop_evicted()
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
        if isinstance(request, Load) and self._residents.main is None and not request.beside:
            handle.deliver(ModelUnloaded(handle.id, 0, resident_memory()))
            if handle.is_cancelled:
                return  # the load was cancelled: ModelUnloaded is its final event
        full = isinstance(error, PromptTooLong) and (
            isinstance(request, Chat) and request.policy is ContextPolicy.STOP
        )
        handle.deliver(Failed(handle.id, str(error), error.remedy, full, error.fault))


def _changes_main(request: Request, main: Resident | None) -> bool:
    """Whether a request replaces or unloads the main model."""
    if isinstance(request, Load):
        return not request.beside
    return isinstance(request, Unload) and request.model in (None, main and main.path)


def _stamps(path: Path) -> tuple[Stamp, ...]:
    """Stamps of a model's files; empty if one is missing, which the loader reports."""
    try:
        return stamps(model_parts(path))
    except OSError:
        return ()
