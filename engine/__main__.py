"""Entry point of the command line: `python -m engine`."""

import signal
import sys

from engine import be_child, gpu_support, gpu_support_folder
from engine.machine import torch_library

if sys.argv[1:] == ["--child"]:  # as `ChildPool` starts it; no command is imported
    be_child()
if gpu_support.use(gpu_support_folder()):  # before the commands import torch
    torch_library.load()

from engine.cli.commands import main

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = main()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(status)
