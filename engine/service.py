"""Engine: owns the thread, takes commands, delivers events.

Everything heavy is imported inside functions that run on the engine's thread, so the window paints
before torch is loaded. This is the one place that catches every exception: it is logged, told as
`Failed`, and the engine goes on.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from engine.device import give_back_memory, memory_error
from engine.errors import Cancelled, EngineError, RequestError
from engine.messages import (
    Cancel,
    Command,
    Event,
    Failed,
    Finished,
    FinishReason,
    Generate,
    LoadModel,
    LoadProgress,
    ModelLoaded,
    ModelUnloaded,
    Role,
    UnloadModel,
)

if TYPE_CHECKING:
    from engine.loader import LoadedModel
    from engine.session import Session

log = logging.getLogger(__name__)


class Engine:
    """The engine thread: commands are carried out one by one, in the order they were sent.

    `deliver` is called on that thread, once per event; it must neither block nor raise. Every
    command but Cancel is over with exactly one event of its request, the last to name it:

    - LoadModel: ModelLoaded, or Failed, before which ModelUnloaded says that no model is left.
      When cancelled: ModelUnloaded, or ModelLoaded for the model from before that is still there.
    - UnloadModel: ModelUnloaded.
    - Generate: Finished, or Failed.

    Cancel is never answered itself; one for a request that neither runs nor waits does nothing.
    """

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        self._deliver = deliver
        self._thread: threading.Thread | None = None
        self._commands: deque[Command] = deque()
        self._wake = threading.Condition()
        self._running: int | None = None  # the request being carried out
        self._cancelled: set[int] = set()  # of those that run or wait
        self._stopping = False
        self._model: LoadedModel | None = None
        self._session: Session | None = None

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
            elif command.request == self._running or any(
                command.request == waiting.request for waiting in self._commands
            ):
                self._cancelled.add(command.request)

    def stop(self) -> None:
        """Cancel what runs and what waits, end the thread and wait for it; for good.

        May be called more than once, and before `start`, but not from `deliver`.
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
        except Exception:  # told by each command, whose own import of torch fails again
            log.exception("torch cannot be loaded")
        while (command := self._next()) is not None:
            try:
                self._handle(command)
            except Cancelled:
                self._on_cancelled(command)
            except EngineError as error:
                self._fail(command, error)
            except Exception as error:  # noqa: BLE001  the engine must outlive any fault
                self._fail(command, memory_error(error) or _unexpected(error))
            with self._wake:
                self._running = None
                self._cancelled.discard(command.request)
        self._unload()

    def _next(self) -> Command | None:
        """The next command; None when the engine is to stop and nothing waits."""
        with self._wake:
            while not self._commands and not self._stopping:
                self._wake.wait()
            if not self._commands:
                return None
            command = self._commands.popleft()
            self._running = command.request
            return command

    def _handle(self, command: Command) -> None:
        match command:
            case LoadModel():
                self._load(command)
            case UnloadModel():
                self._unload()
                self._deliver(ModelUnloaded(command.request))
            case Generate():
                self._generate(command)
            case Cancel():
                pass  # `send` has noted it
            case _:
                assert_never(command)

    def _load(self, command: LoadModel) -> None:
        from engine.loader import load

        checkpoint = self._checkpoint(command.request)
        checkpoint()
        model = load(
            command.path,
            context=command.context,
            threads=command.threads,
            reclaimable=self._held_bytes(),
            progress=lambda done, total: self._deliver(LoadProgress(command.request, done, total)),
            checkpoint=checkpoint,
            before_weights=self._unload,
        )
        self._model, self._session = model, model.new_session()
        self._deliver(_loaded(command.request, model))

    def _held_bytes(self) -> int:
        """What dropping the loaded model would give back."""
        if self._model is None or self._session is None:
            return 0
        return self._model.plan.weights_bytes + self._session.cache_bytes

    def _unload(self) -> None:
        if self._model is not None:
            self._model = self._session = None
            give_back_memory()

    def _generate(self, command: Generate) -> None:
        from engine.beside import Beside
        from engine.chat import prompt_ids
        from engine.generate import Answer

        checkpoint = self._checkpoint(command.request)
        checkpoint()
        if self._model is None or self._session is None:
            raise RequestError("No model is loaded.", "Choose a model first.")
        template, tokenizer = self._model.template, self._model.tokenizer
        continued = bool(command.turns) and command.turns[-1].role is Role.ASSISTANT
        text = (
            template.render_continuation(command.turns)
            if continued
            else template.render(command.turns)
        )
        # A pasted book takes seconds to cut into tokens.
        prompt = Beside(lambda: prompt_ids(tokenizer, text), "prompt").result(checkpoint)
        answer = Answer(
            self._session,
            tokenizer,
            prompt,
            command.sampling,
            max_tokens=command.max_tokens,
            stop=command.stop,
            request=command.request,
            cancelled=lambda: self._is_cancelled(command.request),
        )
        for event in answer.events():
            self._deliver(event)

    def _is_cancelled(self, request: int) -> bool:
        return self._stopping or request in self._cancelled

    def _checkpoint(self, request: int) -> Callable[[], None]:
        def checkpoint() -> None:
            if self._is_cancelled(request):
                raise Cancelled

        return checkpoint

    def _on_cancelled(self, command: Command) -> None:
        """A cancelled load leaves whatever model is still there; the window is told which."""
        if isinstance(command, Generate):  # cancelled before it began
            held = 0 if self._session is None else len(self._session.tokens)
            self._deliver(_nothing_said(command.request, held))
        elif self._model is None:
            self._deliver(ModelUnloaded(command.request))
        else:
            self._deliver(_loaded(command.request, self._model))

    def _fail(self, command: Command, error: EngineError) -> None:
        log.info("request %d failed: %s", command.request, error)
        if isinstance(command, LoadModel) and self._model is None:
            self._deliver(ModelUnloaded(command.request))
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
        fallbacks=model.fallbacks,
        has_template=model.template.present,
        seconds=model.seconds,
    )


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


def _unexpected(error: Exception) -> EngineError:
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
