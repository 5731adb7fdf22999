"""Options of the subcommand `serve`; those of llama-server have its names too.

Options of that program that this one does not need, since it does by itself what they are for, are
taken and named in a line, so that a command that starts one starts the other.
"""

from __future__ import annotations

import argparse

from engine.messages import Pooling
from engine.server.limits import HOST, PORT

# Flags of llama-server, and the number of values that follow each.
_NOT_NEEDED: tuple[tuple[tuple[str, ...], int], ...] = (
    (("--jinja",), 0),
    (("-cb", "--cont-batching"), 0),
    (("--embedding", "--embeddings"), 0),
    (("--rerank", "--reranking"), 0),
    (("--slots",), 0),
    (("--offline",), 0),
    (("--no-webui", "--no-ui"), 0),
    (("--no-warmup",), 0),
    (("--no-mmap",), 0),
    (("--mlock",), 0),
    (("--no-context-shift",), 0),
    (("-kvu", "--kv-unified"), 0),
    (("--swa-full",), 0),
    (("-b", "--batch-size"), 1),
    (("-ub", "--ubatch-size"), 1),
    (("-fa", "--flash-attn"), 1),
    (("-ngl", "--gpu-layers", "--n-gpu-layers"), 1),
    (("-tb", "--threads-batch"), 1),
    (("--threads-http",), 1),
    (("--cache-ram", "-cram"), 1),
    (("--cache-reuse",), 1),
    (("--reasoning-format",), 1),
    (("-to", "--timeout"), 1),
)


class _NotNeeded(argparse.Action):
    """Remembers the name of an option that is not needed."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        namespace.not_needed = [*namespace.not_needed, option_string]


def add(serve: argparse.ArgumentParser) -> None:
    """Add the options to the subcommand, but for adapters and sampling."""
    _add_listening(serve)
    _add_model(serve)
    _add_answers(serve)
    serve.set_defaults(not_needed=[])
    for flags, count in _NOT_NEEDED:
        help = argparse.SUPPRESS
        serve.add_argument(*flags, action=_NotNeeded, nargs=count, dest="not_needed", help=help)


def _add_listening(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--host", default=HOST, metavar="ADDRESS,...", help=f"the addresses to listen at ({HOST})"
    )
    serve.add_argument("--port", type=_port, default=PORT, help=f"0: any free one ({PORT})")
    serve.add_argument("--key", "--api-key", default="", help="a key that clients must send")
    serve.add_argument(
        "--key-file",
        "--api-key-file",
        metavar="FILE",
        help="a file with that key, which other users cannot see",
    )
    serve.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="web pages that may use the server, such as http://localhost:3000; localhost: those"
        " of this computer; *: all",
    )
    serve.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name of this computer in URLs",
    )
    serve.add_argument(
        "--slot-save-path",
        metavar="FOLDER",
        help="where clients may save cached texts, by POST /slots/N?action=save and restore",
    )
    serve.add_argument(
        "--image-files",
        "--media-path",
        metavar="FOLDER",
        help="clients may name the pictures in it, as file:// URLs or paths; they must send others",
    )
    serve.add_argument("--no-slots", action="store_true", help="/slots does not say what runs")
    serve.add_argument("--no-metrics", action="store_true", help="/metrics does not say how much")
    serve.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="responses to chats have the prompt, as the model reads it, in `__verbose`",
    )
    serve.add_argument("--log-texts", action="store_true", help="keep texts in the log in memory")


def _add_model(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "-m", "--model", help="the model to load first: a path, a name, or `starter`"
    )
    serve.add_argument(
        "-a",
        "--alias",
        action="append",
        default=[],
        metavar="NAME,...",
        help="names of the first model, which lists show; *: any name that no other model has",
    )
    serve.add_argument(
        "--tags", default="", metavar="WORD,...", help="words about it, which lists show"
    )
    serve.add_argument(
        "--chat-template",
        default="",
        metavar="NAME|JINJA",
        help="instead of the one in its file: a built-in template such as chatml, or its text",
    )
    serve.add_argument("--chat-template-file", metavar="FILE", help="the same, from a file")
    serve.add_argument(
        "-md",
        "--draft",
        "--model-draft",
        metavar="MODEL",
        help="draft its tokens with this small model of the same family",
    )
    serve.add_argument(
        "--ngram", action="store_true", help="draft its tokens from earlier places of the text"
    )
    serve.add_argument(
        "--pooling",
        choices=[kind.value for kind in Pooling],
        help="how the states of a text become its embedding; none: one for each token, by"
        " /embeddings; by default as the model file says",
    )
    serve.add_argument(
        "-np",
        "--parallel",
        type=int,
        default=0,
        metavar="N",
        help="answers that it generates at once, each with the whole context; others wait (16)",
    )
    serve.add_argument(
        "-c", "--context", "--ctx-size", type=int, default=0, help="tokens; 0: by the memory"
    )
    serve.add_argument("-t", "--threads", type=int, default=0, help="0: one per physical core")
    serve.add_argument("--memory", metavar="SIZE", default="", help="the most that the model takes")
    serve.add_argument("--device", default="auto", metavar="NAME", help="as for `chat`")
    serve.add_argument(
        "--sleep-idle-seconds",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="after which the first model is unloaded until it is needed again; 0: never (0)",
    )
    serve.add_argument(
        "--keep",
        type=float,
        default=5.0,
        metavar="MINUTES",
        help="that another model stays loaded after its last answer; -1: for ever (5)",
    )
    serve.add_argument("--only", action="store_true", help="load no other models for clients")


def _add_answers(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "-n",
        "--predict",
        "--n-predict",
        dest="max_tokens",
        type=int,
        default=0,
        metavar="N",
        help="the most tokens of an answer whose request does not say; 0 or -1: no limit (0)",
    )
    serve.add_argument(
        "-rea",
        "--reasoning",
        "--thinking",
        dest="thinking",
        metavar="on|off|auto|N",
        default="auto",
        help="whether models think first, or for how many tokens at most, if a request does not say",
    )
    serve.add_argument(
        "--lora-init-without-apply",
        action="store_true",
        help="adapters begin with scale 0; requests and /lora-adapters change it",
    )


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return port
