"""`python -m engine serve` under the options of llama-server, for the test suite of that server.

    LLAMA_SERVER_BIN_PATH=tests/drivers/as_llama_server.py pytest unit/  # in llama.cpp/tools/server/tests

The model is the file in the environment variable SERVED_MODEL, whatever the suite asks for: its own
test model cannot be had. Options that have no counterpart are ignored.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Replace this process by the server."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--port", default="8080")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--ctx-size", type=int, default=0)
    parser.add_argument("--alias", default="")
    parser.add_argument("--api-key", action="append", default=[])
    parser.add_argument("--cors-origins", default="")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--lora", action="append", default=[])
    asked, _ = parser.parse_known_args()
    command = [sys.executable, "-m", "engine", "serve", "--only", "--keep", "-1"]
    command += ["--model", os.environ["SERVED_MODEL"], "--host", asked.host, "--port", asked.port]
    # Its slots share the context; ours have one each.
    command += ["--context", str(asked.ctx_size // asked.parallel)]
    for alias in [*filter(None, asked.alias.split(",")), "*"]:  # it answers to any name
        command += ["--alias", alias]
    for key in asked.api_key:
        command += ["--key", key]
    for origin in asked.cors_origins.split(","):
        command += ["--allow-origin", origin] if origin else []
    os.chdir(ROOT)
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
