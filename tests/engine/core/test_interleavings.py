"""Random interleavings of requests against each run alone: equal ids, equal keys and values.

Requests are submitted, cancelled and preempted, adapters switched, drafts verified, cached pages
evicted to disk or dropped, conversations saved, restored and deleted, at random between passes.
Prompts share prefixes that end within pages and at their borders. The files are real, and written
by another thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

import every_architecture
from chosen_backend import ops
from engine.messages import CacheType
from interleaving import ARCHITECTURES, QUICK, RUNS, Asked, alone, check
from kernels.cpu import library


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    if not library.available():
        pytest.skip(library.reason())
    with ops.only("cpu"):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.sweep
@settings(max_examples=60, suppress_health_check=QUICK)
@given(**RUNS)
def test_answers_do_not_depend_on_how_requests_interleave(
    folder: Path, requests: list[Asked], actions: list[tuple[str, int]], **sizes: int
) -> None:
    check(alone(folder, "llama", CacheType.Q8_0), requests, actions, **sizes)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@settings(max_examples=25, suppress_health_check=QUICK)
@given(**RUNS)
def test_answers_of_each_architecture_do_not_depend_on_how_requests_interleave(
    folder: Path,
    architecture: str,
    requests: list[Asked],
    actions: list[tuple[str, int]],
    **sizes: int,
) -> None:
    check(alone(folder, architecture, CacheType.F16), requests, actions, **sizes)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", every_architecture.names())
@pytest.mark.parametrize("type", list(CacheType), ids=lambda type: type.value)
@settings(max_examples=450, suppress_health_check=QUICK)  # 20,250 in all
@given(**RUNS)
def test_answers_do_not_depend_on_how_requests_interleave_in_many_runs(
    folder: Path,
    architecture: str,
    type: CacheType,
    requests: list[Asked],
    actions: list[tuple[str, int]],
    **sizes: int,
) -> None:
    check(alone(folder, architecture, type), requests, actions, **sizes)
