"""The subcommand `serve`: a local HTTP server for other programs, until it is interrupted."""

from __future__ import annotations

import os
import queue
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from engine.cli import options as options_of
from engine.cli import sampling_options
from engine.cli.files import read_text
from engine.cli.options import Options
from engine.cli.output import print_status
from engine.client import Engine
from engine.errors import EngineError, RequestError
from engine.loading.library import find_model
from engine.messages import (
    AdapterUse,
    DraftKind,
    DraftSet,
    Event,
    Failed,
    Load,
    ModelLoaded,
    Pooling,
    Request,
    SetDraft,
)

if TYPE_CHECKING:
    from engine.server.models import MainModel

_KEY_VARIABLE = "TOKONOMA_API_KEY"
_FOREVER = -1.0  # seconds that a model is kept
_POLL_SECONDS = 0.5  # Windows hands no signal to a thread that waits without end
_LONGEST = 1e8  # seconds until a model sleeps


def serve(options: Options) -> None:
    """Run the server."""
    # Not at the top: the other subcommands do without a web server.
    from engine.server.guards import Security
    from engine.server.serve import Server, ServerOptions
    from engine.server.service import ServiceOptions

    if options.not_needed:
        print_status(f"Not needed here: {', '.join(dict.fromkeys(options.not_needed))}.")
    folder = options.slot_save_path
    engine = Engine(snapshots=None if folder is None else Path(folder))
    main = None if options.model is None else _main(options)
    thinking, budget = options_of.thinking(options)
    made = ServerOptions(
        host=options.host,
        port=options.port,
        security=Security(
            _key(options),
            tuple(options.allow_origin),
            tuple(options.allow_host),
            image_files=_image_files(options),
        ),
        service=ServiceOptions(
            keep_seconds=_FOREVER if options.keep < 0 else 60.0 * options.keep,
            loads=not options.only,
            context=options.context,
            aliases=tuple(part for text in options.alias for part in _parts(text)),
            tags=_parts(options.tags),
            main=main,
            adapters=tuple(_adapters(options)),
            keeps_texts=options.log_texts,
            sampling=sampling_options.given(options),
            max_tokens=max(options.max_tokens, 0),
            thinking=thinking,
            thinking_budget=budget,
            pooling=Pooling(options.pooling) if options.pooling else None,
            drafts=_drafts(options),
            shows_slots=not options.no_slots,
            shows_prompts=options.verbose,
            saves_slots=folder is not None,
            shows_metrics=not options.no_metrics,
        ),
    )
    server = Server(engine, made)
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()
        signal.signal(number, before[signal.Signals(number)])  # a second one ends the program

    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    for one in before:
        signal.signal(one, end)
    engine.start()
    try:
        if main is not None:
            _load(engine, main, ended)
        if ended.is_set():
            return
        server.start()
        print(
            f"Listening at {server.address} (for OpenAI's clients: {server.address}/v1)", flush=True
        )
        if not server.is_local and not made.security.key:
            print_status("Everyone in the network can use it: give --key-file to ask for a key.")
        while not ended.wait(_POLL_SECONDS):
            pass
    finally:
        server.stop()
        engine.stop()
        for one, handler in before.items():
            signal.signal(one, handler)


def _main(options: Options) -> MainModel:
    """How the main model is loaded; raises RequestError."""
    from engine.server.models import MainModel

    template = options.chat_template
    if options.chat_template_file is not None:
        template = read_text(Path(options.chat_template_file))
        if not template.strip():
            raise RequestError("The file of --chat-template-file is empty.", "Choose another one.")
    if not 0 <= options.sleep_idle_seconds < _LONGEST:
        raise RequestError("--sleep-idle-seconds is no time.", "Give 0 for never, or more.")
    load = Load(
        find_model(options.model),
        context=options.context,
        threads=options.threads,
        device=options_of.device(options),
        memory_bytes=options_of.memory(options),
        embeddings=True,
        template=template,
        parallel=max(options.parallel, 0),  # -1 of llama-server: by itself
    )
    draft = None if options.draft is None else find_model(options.draft)
    return MainModel(load, draft, options.sleep_idle_seconds)


def _load(engine: Engine, main: MainModel, ended: threading.Event) -> None:
    """Load the main model, unless the program is to end; raises EngineError."""
    _wait(engine, main.load, ModelLoaded, ended)
    if main.draft is not None and not ended.is_set():
        _wait(engine, SetDraft(main.draft), DraftSet, ended)


def _wait(engine: Engine, request: Request, kind: type[Event], ended: threading.Event) -> None:
    """Wait for an event of a request, or the end of the program; raises EngineError."""
    arrived: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine.submit(request, arrived.put)
    while not ended.is_set():
        try:
            event = arrived.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            continue
        if isinstance(event, kind):
            return
        if isinstance(event, Failed):
            raise EngineError(event.message, event.remedy, event.fault)


def _drafts(options: Options) -> DraftKind:
    """What drafts the tokens of answers."""
    if options.draft is not None:
        return DraftKind.MODEL
    return DraftKind.LOOKUP if options.ngram else DraftKind.NONE


def _adapters(options: Options) -> list[AdapterUse]:
    """The adapters of the main model."""
    found = options_of.adapters(options)
    return (
        [replace(one, strength=0.0) for one in found] if options.lora_init_without_apply else found
    )


def _parts(text: str) -> tuple[str, ...]:
    """The parts of a list with commas."""
    return tuple(part for part in (one.strip() for one in text.split(",")) if part)


def _image_files(options: Options) -> Path | None:
    """The folder of pictures that requests may name; None: none. Raises RequestError."""
    if options.image_files is None:
        return None
    folder = Path(options.image_files)
    if not folder.is_dir():
        raise RequestError("The folder of --image-files is not there.", "Give one that is.")
    return folder


def _key(options: Options) -> str:
    """The key that clients must send; "": none."""
    if options.key_file is not None:
        key = read_text(Path(options.key_file)).removeprefix("\ufeff").strip()
        if not key:
            raise RequestError("The file of --key-file is empty.", "Write the key into it.")
    else:
        key = options.key or os.environ.get(_KEY_VARIABLE, "")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise RequestError(
            "The key has characters that HTTP headers cannot carry.",
            "Use letters, digits and punctuation of ASCII, without spaces.",
        )
    return key
