"""The side of the program: runs it as Python would, and prints the value of its last expression."""

from __future__ import annotations

import ast
import atexit
import io
import linecache
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Sequence
from typing import NoReturn

NAME = "program.py"  # as its tracebacks name it
KEPT = {"HOME", "TMPDIR", "LANG"}  # variables of the environment


def run(code: str, path: Sequence[str]) -> NoReturn:
    """Run a program with this `sys.path`, then end the process with its exit status.

    The descriptors 0, 1 and 2 are its standard streams.
    """
    _be_fresh(path)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
    try:
        tree = ast.parse(code, NAME)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, NAME, "exec"), module.__dict__)  # the sandbox is for this
        if isinstance(last, ast.Expr):
            expression = compile(ast.Expression(last.value), NAME, "eval")
            value = eval(expression, module.__dict__)
            if value is not None:
                sys.stdout.write(f"{value!r}\n")
        status = 0
    except SystemExit as error:
        status = _status(error)
    except BaseException as error:  # noqa: BLE001  it is the program's, which reads it
        _print_error(error)
        status = 1
    _end(status)


def _be_fresh(path: Sequence[str]) -> None:
    """Leave nothing of the app to the program."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "app"]:
        del sys.modules[name]
    sys.path[:] = path
    sys.argv[:] = [NAME]
    for name in os.environ.keys() - KEPT:  # a bundle sets some for itself
        del os.environ[name]
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the app was started so
    for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        file = io.FileIO(descriptor, "w" if descriptor else "r", closefd=False)
        buffer = io.BufferedWriter(file) if descriptor else io.BufferedReader(file)
        stream = io.TextIOWrapper(buffer, "utf-8", "backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _status(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1


def _print_error(error: BaseException) -> None:
    """Print a traceback of the program's own lines."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_code.co_filename != NAME:
        step = step.tb_next
    traceback.print_exception(type(error), error, step)


def _end(status: int) -> NoReturn:
    """End as the interpreter does: threads, `atexit`, what is not written yet."""
    try:
        for module, function in ((threading, "_shutdown"), (atexit, "_run_exitfuncs")):
            getattr(module, function)()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)
