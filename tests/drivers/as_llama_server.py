"""`python -m engine serve` under the options of llama-server, for the test suite of that server.

    LLAMA_SERVER_BIN_PATH=tests/drivers/as_llama_server.py pytest unit/  # in llama.cpp/tools/server/tests

The model is the file in the environment variable SERVED_MODEL, whatever the suite asks for: its own
test model cannot be had. Most options have the same names; those below mean something else there, or
are of a file that is not served.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Options that say which model is served, or have no counterpart, with a value.
_LEFT_OUT = (
    "--model",
    "--model-url",
    "--hf-repo",
    "--hf-file",
    "--mmproj-url",
    "--media-path",
    "--spec-type",
    "--spec-draft-n-min",
    "--spec-draft-n-max",
    "--spec-synth-len",
    "--spec-synth-rates",
)


def main() -> None:
    """Replace this process by the server."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ctx-size", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--alias", default="")
    parser.add_argument("--cors-origins", default="")
    parser.add_argument("--chat-template-file")
    parser.add_argument("--reasoning")
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--slots", action="store_true")
    parser.add_argument("--no-mmproj", action="store_true")
    parser.add_argument("--no-jinja", action="store_true")
    for name in _LEFT_OUT:
        parser.add_argument(name)
    asked, others = parser.parse_known_args()
    command = [sys.executable, "-m", "engine", "serve", "--only", "--keep", "-1"]
    command += ["--model", os.environ["SERVED_MODEL"]]
    # Its slots share the context; ours have one each.
    command += ["--context", str(asked.ctx_size // asked.parallel)]
    command += ["--parallel", str(asked.parallel)]
    # It sorts the names of a model, and answers to any other.
    for alias in [*sorted(filter(None, asked.alias.split(","))), "*"]:
        command += ["--alias", alias]
    for origin in filter(None, asked.cors_origins.split(",")):
        command += ["--allow-origin", origin]
    if asked.chat_template_file:
        command += ["--chat-template-file", str(Path(asked.chat_template_file).resolve())]
    # Its automatic is on, wherever a template has the switch; ours is what the template does alone.
    if asked.reasoning:
        command += ["--reasoning", "off" if asked.reasoning == "off" else "on"]
    command += [] if asked.metrics else ["--no-metrics"]
    os.chdir(ROOT)
    os.execv(sys.executable, [*command, *others])


if __name__ == "__main__":
    main()
