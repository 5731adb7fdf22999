"""Slots: how many there are, which one an answer has, and cached texts that are saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine, Load
from engine.server.serve import ServerOptions
from engine.server.service import ServiceOptions
from engine.server.slots import Slots
from serving import Served

TEXT = "the quick brown fox jumps over the lazy dog and the old tree"


def body(prompt: str = TEXT, **options: object) -> dict[str, object]:
    return {"prompt": prompt, "n_predict": 4, "temperature": 0} | options


@pytest.fixture
def saving(tiny_model: Path, tmp_path: Path) -> Iterator[Served]:
    options = ServerOptions(service=ServiceOptions(saves_slots=True))
    made = Served(tiny_model, options, engine=Engine(snapshots=tmp_path))
    yield made
    made.close()


def test_a_text_is_saved_and_restored(saving: Served) -> None:
    found = saving.post("/completion", body(id_slot=1))
    assert found["id_slot"] == 1
    tokens = found["tokens_evaluated"] + found["tokens_predicted"]
    saved = saving.post("/slots/1?action=save", {"filename": "fox.bin"})
    assert saved["n_saved"] == pytest.approx(tokens, abs=1)
    assert saved["n_written"] > 0
    restored = saving.post("/slots/0?action=restore", {"filename": "fox.bin"})
    assert restored["n_restored"] > 0
    assert restored["filename"] == "fox.bin"


def test_an_erased_text_is_read_again(served: Served) -> None:
    """What other texts share with it stays."""
    alone, shared = "a text of its own " * 40, "a beginning that two have " * 40
    first = served.post("/completion", body(alone, id_slot=3))["timings"]
    assert served.post("/completion", body(alone, id_slot=3))["timings"]["cache_n"] > 0
    response = served.http.post("/slots/3?action=erase")
    erased = response.json()
    assert erased["id_slot"] == 3
    assert erased["n_erased"] > first["prompt_n"] / 2
    again = served.post("/completion", body(alone, id_slot=3))["timings"]
    assert again["prompt_n"] == first["prompt_n"] + first["cache_n"]
    for slot, end in ((1, "left"), (2, "right")):
        served.post("/completion", body(shared + end, id_slot=slot))
    served.http.post("/slots/1?action=erase")
    assert served.post("/completion", body(shared + "right"))["timings"]["cache_n"] > 250
    assert served.http.post("/slots/1?action=erase").json()["n_erased"] == 0
    assert served.http.post("/slots/9?action=erase").json() == {"id_slot": 9, "n_erased": 0}


def test_a_saved_text_is_there_after_a_restart(tiny_model: Path, tmp_path: Path) -> None:
    options = ServerOptions(service=ServiceOptions(saves_slots=True))
    answers = []
    for is_first in (True, False):
        made = Served(tiny_model, options, engine=Engine(snapshots=tmp_path))
        try:
            if not is_first:
                found = made.post("/slots/0?action=restore", {"filename": "fox"})
                assert found["n_restored"] > 0
            answers.append(made.post("/completion", body()))
            if is_first:
                made.post("/slots/0?action=save", {"filename": "fox"})
        finally:
            made.close()
    assert answers[0]["content"] == answers[1]["content"]
    assert answers[0]["timings"]["cache_n"] == 0 < answers[1]["timings"]["cache_n"]


@pytest.mark.parametrize(
    ("path", "filename", "status"),
    [
        ("/slots/7?action=save", "a", 400),  # no answer was there
        ("/slots/0?action=restore", "never saved", 400),
        ("/slots/0?action=restore", "../a", 400),
        ("/slots/0?action=save", "", 400),
        ("/slots/0?action=burn", "a", 400),
        ("/slots/0", "a", 400),
        ("/slots/-1?action=save", "a", 400),
        ("/slots/x?action=save", "a", 400),
        ("/slots/99999999?action=save", "a", 400),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    saving: Served, path: str, filename: str, status: int
) -> None:
    message = saving.error(path, {"filename": filename}, status)["error"]["message"]
    assert message.endswith(".")


def test_nothing_is_saved_unless_a_folder_was_named(served: Served) -> None:
    error = served.error("/slots/0?action=save", {"filename": "a"}, 501)["error"]
    assert "--slot-save-path" in error["message"]


def test_the_first_free_slot_is_taken() -> None:
    slots = Slots()
    with slots.taken(-1) as first, slots.taken(-1) as second, slots.taken(5) as asked:
        assert (first, second, asked) == (0, 1, 5)
    with slots.taken(-1) as first:
        assert first == 0


def test_a_model_is_loaded_for_a_number_of_answers(tiny_model: Path) -> None:
    made = Served()
    try:
        made.load_with(Load(tiny_model, parallel=2))
        assert made.get("/props")["total_slots"] == 2
        assert [one["id"] for one in made.get("/slots")] == [0, 1]
        assert not any(one["is_processing"] for one in made.get("/slots"))
    finally:
        made.close()


def test_slots_and_metrics_may_be_hidden(tiny_model: Path) -> None:
    service = ServiceOptions(shows_slots=False, shows_metrics=False)
    made = Served(tiny_model, ServerOptions(service=service))
    try:
        for path in ("/slots", "/metrics"):
            assert made.http.get(path).status_code == 501
        assert made.get("/props")["total_slots"] == 16
    finally:
        made.close()
