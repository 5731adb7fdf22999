"""Scenes of the performance page, for tests/pictures/shots.py."""

from __future__ import annotations

import math
from dataclasses import replace

from app.state.performance import AnswerFigures
from engine import Histogram, MetricsRead
from fakes import MODEL
from scenes_chat import Scene
from stage import Stage, flush

METRICS = MetricsRead(
    0,
    model="Small Model 135M",
    first_token_seconds=Histogram((0.1, 1.0), (20, 9, 1), 9.4, 0.31, 1.42),
    token_seconds=Histogram((0.01, 0.1), (4000, 900, 3), 71.0, 0.0229, 0.0416),
    answers=(("end", 28), ("stop", 0), ("length", 1), ("context", 0), ("cancelled", 1)),
    prompt_tokens=18_400,
    reused_tokens=15_100,
    generated_tokens=4_903,
    drafted_tokens=1_240,
    accepted_tokens=803,
    cached_page_bytes=212_000_000,
    saved_page_bytes=846_000_000,
    resident_bytes=1_310_000_000,
)


def figures(at: int) -> AnswerFigures:
    """An answer with plausible figures."""
    speed = (
        (38 if at > 8 else 17)
        + (9 if at > 8 else 3) * math.sin(at * 1.7)
        + (14 if at % 7 == 3 else 0)
    )
    return AnswerFigures(
        model="Small Model 135M" if at > 8 else "Other Model 1B",
        generated_tokens=90 + 31 * (at % 6),
        tokens_per_second=speed,
        first_token_seconds=0.3 + 0.25 * math.cos(at * 2.3) + (2.4 if at == 5 else 0),
        token_seconds_p50=0.95 / speed,
        token_seconds_p95=1.6 / speed,
        prompt_tokens=400 + 40 * at,
        reused_tokens=380 + 36 * at if at != 5 else 0,
        draft_gain=1.6 if at % 7 == 3 else 1.0,
        drafted_tokens=40,
        accepted_tokens=24 if at % 7 == 3 else 0,
    )


def show(stage: Stage, answers: int) -> None:
    """Open the page after so many answers."""
    stage.ready(MODEL)
    for at in range(answers):
        stage.states.performance.add(figures(at))
    stage.window.performance.toggle()
    flush()
    if answers:
        stage.states.performance.set_metrics(replace(METRICS, request=1))
    flush()


def performance(stage: Stage) -> None:
    show(stage, 30)


def performance_one(stage: Stage) -> None:
    show(stage, 1)


def performance_narrow(stage: Stage) -> None:
    stage.window.resize(420, 360)
    show(stage, 60)


def performance_empty(stage: Stage) -> None:
    show(stage, 0)


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (performance, performance_one, performance_narrow, performance_empty)
}
