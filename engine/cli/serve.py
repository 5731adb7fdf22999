"""The subcommand `serve`: a local HTTP server for other programs, until it is interrupted."""

from __future__ import annotations

import os
import queue
import signal
import threading
from pathlib import Path
from types import FrameType

from engine.cli import options as options_of
from engine.cli.files import read_text
from engine.cli.options import Options
from engine.cli.output import print_status
from engine.client import Engine
from engine.errors import EngineError, RequestError
from engine.loading.library import find_model
from engine.messages import Event, Failed, Load, ModelLoaded

_KEY_VARIABLE = "TOKONOMA_API_KEY"
_FOREVER = -1.0  # seconds that a model is kept
_POLL_SECONDS = 0.5  # Windows hands no signal to a thread that waits without end


def serve(options: Options) -> None:
    """Run the server."""
    # Not at the top: the other subcommands do without a web server.
    from engine.server.guards import Security
    from engine.server.serve import Server, ServerOptions
    from engine.server.service import ServiceOptions

    engine = Engine()
    made = ServerOptions(
        host=options.host,
        port=options.port,
        security=Security(_key(options), tuple(options.allow_origin), tuple(options.allow_host)),
        service=ServiceOptions(
            keep_seconds=_FOREVER if options.keep < 0 else 60.0 * options.keep,
            loads=not options.only,
            context=options.context,
            aliases=tuple(options.alias),
            adapters=tuple(options_of.adapters(options)),
            keeps_texts=options.log_texts,
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
        if options.model is not None:
            _load(engine, options, ended)
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


def _load(engine: Engine, options: Options, ended: threading.Event) -> None:
    """Load the main model, unless the program is to end; raises EngineError."""
    arrived: queue.SimpleQueue[Event] = queue.SimpleQueue()
    load = Load(
        find_model(options.model),
        context=options.context,
        threads=options.threads,
        device=options_of.device(options),
        memory_bytes=options_of.memory(options),
        embeddings=True,
    )
    engine.submit(load, arrived.put)
    while not ended.is_set():
        try:
            event = arrived.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            continue
        if isinstance(event, ModelLoaded):
            return
        if isinstance(event, Failed):
            raise EngineError(event.message, event.remedy, event.fault)


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
