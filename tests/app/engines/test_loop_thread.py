"""Event loops on threads of their own: they start when needed, and end whatever their work does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

from app.engines.loop_thread import LoopThread

ROOT = Path(__file__).parents[3]
_BLOCKED = """
import asyncio, threading
from app.engines.loop_thread import LoopThread
thread, begun = LoopThread("test"), threading.Event()
def blocks():
    begun.set()
    threading.Event().wait()
asyncio.run_coroutine_threadsafe(asyncio.to_thread(blocks), thread.loop)
begun.wait()
thread.stop()
"""


def test_cancelled_work_cleans_up_before_the_thread_ends() -> None:
    thread, begun, ended = LoopThread("test"), threading.Event(), list[str]()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(threading.current_thread().name)

    asyncio.run_coroutine_threadsafe(work(), thread.loop)
    begun.wait()
    thread.stop()
    assert ended == ["test"]


def test_a_blocking_call_that_never_returns_does_not_keep_the_app_from_ending() -> None:
    subprocess.run([sys.executable, "-c", _BLOCKED], cwd=ROOT, check=True, timeout=60)
