"""Entry point of the command line: `python -m engine`."""

import signal
import sys

from engine.cli.commands import main

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = main()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(status)
