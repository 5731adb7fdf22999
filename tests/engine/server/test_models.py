"""Models by name: found, loaded on demand, kept, and never pulled from an answer that runs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tiny
from engine import Engine, Failed, Fault, FaultKind, Load, RequestHandle
from engine.server.models import MainModel, Models
from engine.server.serve import ServerOptions
from engine.server.service import ServiceOptions
from engine_bench import with_printable_output
from serving import Served, chat, wait_until

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, the second with the name of a split one."""
    made = tmp_path_factory.mktemp("installed")
    with_printable_output(tiny.write(made / "First-Model-Q8_0.gguf", context=1024, seed=1))
    with_printable_output(tiny.write(made / "second_model-F32.gguf", context=1024, seed=2))
    return made


@pytest.fixture
def library(folder: Path) -> Iterator[Served]:
    """A server that loads models on demand; none is loaded."""
    made = Served(options=ServerOptions(service=ServiceOptions(lambda: (folder,))))
    yield made
    made.close()


def answer(served: Served, model: str, **options: Any) -> str:
    return served.post(CHAT, chat(model=model, **options))["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "name",
    [
        "First-Model-Q8_0",
        "first-model-q8_0.gguf",
        "First Model",
        "First Model · Q8_0",
        "first-model-q8_0:latest",
    ],
)
def test_a_model_has_several_names(library: Served, name: str) -> None:
    assert library.post(CHAT, chat(model=name))["model"] == "First-Model-Q8_0"


def test_the_list_says_what_is_loaded(library: Served) -> None:
    def states() -> dict[str, str]:
        return {one["id"]: one["meta"]["state"] for one in library.get("/v1/models")["data"]}

    assert states() == {"First-Model-Q8_0": "installed", "second_model-F32": "installed"}
    answer(library, "second_model-F32")
    assert states()["second_model-F32"] == "loaded"
    assert 'model_info{name="second model"} 1' in library.http.get("/metrics").text
    assert library.get("/v1/models/second_model-F32")["max_model_len"] == 1024


def test_without_a_name_and_a_loaded_model_the_error_lists_names(library: Served) -> None:
    error = library.error(CHAT, chat(), 404)["error"]
    assert error["code"] == "model_not_found"
    assert "First-Model-Q8_0, second_model-F32" in error["message"]


def test_a_swap_waits_for_the_answer_that_runs(library: Served) -> None:
    alone = answer(library, "First-Model-Q8_0", max_tokens=600, temperature=0)
    first, began = [], threading.Event()

    def stream() -> None:
        body = chat(model="First-Model-Q8_0", max_tokens=600, temperature=0, stream=True)
        with library.http.stream("POST", CHAT, json=body) as response:
            for line in response.iter_lines():
                first.append(line)
                began.set()

    with ThreadPoolExecutor() as pool:
        running = pool.submit(stream)
        assert began.wait(20)
        second = answer(library, "second_model-F32")
        running.result(20)
    assert first[-2] == "data: [DONE]"
    whole = "".join(part for part in contents(first))
    assert whole == alone
    assert second


def contents(lines: list[str]) -> list[str]:
    values = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return [one["choices"][0]["delta"].get("content") or "" for one in values]


def test_requests_for_one_model_load_it_once(library: Served) -> None:
    loads: list[object] = []
    submit = library.engine.submit

    def counted(request: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(request, Load):
            loads.append(request)
        return submit(request, *rest, **named)

    library.engine.submit = counted
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: answer(library, "First-Model-Q8_0"), range(8)))
    assert len(set(found)) == 1
    assert len(loads) == 1


def test_a_client_that_leaves_as_its_model_is_loaded_does_not_hold_it(folder: Path) -> None:
    engine = Engine()
    engine.start()

    async def leave_when_leased() -> bool:
        models, is_leased = Models(engine, lambda: (folder,)), asyncio.Event()
        take = models._take

        def take_and_tell(path: Path) -> None:
            take(path)
            is_leased.set()

        models._take = take_and_tell  # type: ignore[method-assign]

        async def use() -> None:
            async with models.use("First Model"):
                await asyncio.Event().wait()

        client = asyncio.ensure_future(use())
        await is_leased.wait()
        client.cancel()
        await asyncio.gather(client, return_exceptions=True)
        return not models._leases

    try:
        assert asyncio.run(asyncio.wait_for(leave_when_leased(), 30))
    finally:
        engine.stop()


def test_a_server_that_ends_has_the_models_of_its_clients_unloaded(folder: Path) -> None:
    options = ServiceOptions(lambda: (folder,))
    made = Served(folder / "second_model-F32.gguf", ServerOptions(service=options))
    try:
        assert answer(made, "First Model")
        assert len(made.engine.resident) == 2
        made.server.stop()
        wait_until(lambda: [one.beside for one in made.engine.resident] == [False])
    finally:
        made.close()


def test_a_loaded_model_answers_after_its_file_was_deleted(tmp_path: Path) -> None:
    path = with_printable_output(tiny.write(tmp_path / "gone.gguf", context=1024))
    made = Served(path)
    try:
        path.unlink()
        assert answer(made, "")
        assert made.get("/v1/models/")["data"][0]["id"] == "gone"
    finally:
        made.close()


def test_swaps_under_load_give_the_same_answers(library: Served) -> None:
    names = ["First-Model-Q8_0", "second_model-F32"]
    alone = {name: answer(library, name) for name in names}
    wanted = names * 4
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: answer(library, name), wanted))
    assert found == [alone[name] for name in wanted]


def test_a_model_that_cannot_be_loaded_is_one_sentence(library: Served, folder: Path) -> None:
    broken = folder / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    try:
        wait_until(lambda: len(library.get("/v1/models")["data"]) == 3)
        error = library.error(CHAT, chat(model="broken"), 500)["error"]
        assert error["code"] == "model_unusable"
        assert answer(library, "First-Model-Q8_0")
    finally:
        broken.unlink()


def test_a_server_may_load_nothing(folder: Path) -> None:
    options = ServiceOptions(lambda: (folder,), loads=False)
    made = Served(folder / "second_model-F32.gguf", ServerOptions(service=options))
    try:
        assert answer(made, "second_model-F32")
        error = made.error(CHAT, chat(model="First-Model-Q8_0"), 403)["error"]
        assert error["code"] == "model_not_loaded"
    finally:
        made.close()


def test_aliases_are_the_main_models(folder: Path) -> None:
    """The first one is its name in lists and answers, in place of its file's."""
    stem = "second_model-F32"
    for aliases, others, name in ((("gpt-9", "x"), 404, "gpt-9"), (("*",), 200, stem)):
        options = ServiceOptions(lambda: (folder,), aliases=aliases)
        made = Served(folder / "second_model-F32.gguf", ServerOptions(service=options))
        try:
            body = chat(model="GPT-9")
            assert made.post(CHAT, body)["model"] == name
            assert made.post(CHAT, chat(model=stem))["model"] == name
            assert made.http.post(CHAT, json=chat(model="other")).status_code == others
            nameless = made.http.post(CHAT, json=chat(model=None)).status_code
            assert nameless == (400 if others == 404 else 200)
            first = made.get("/v1/models")["data"][0]
            assert (first["id"], first["aliases"]) == (name, [one for one in aliases if one != "*"])
            assert made.post(CHAT, chat(model="First Model"))["model"] == "First-Model-Q8_0"
        finally:
            made.close()


def test_a_model_is_unloaded_after_a_while_and_the_main_one_stays(folder: Path) -> None:
    options = ServiceOptions(lambda: (folder,), keep_seconds=0.05)
    made = Served(folder / "second_model-F32.gguf", ServerOptions(service=options))
    try:
        assert answer(made, "First Model")
        assert answer(made, "")
        wait_until(lambda: len(made.engine.resident) == 1)
        time.sleep(0.2)
        (left,) = made.engine.resident
        assert left.name != "First-Model-Q8_0"
        assert left.path.name == "second_model-F32.gguf"
        assert answer(made, "First Model")
    finally:
        made.close()


def test_a_model_beside_the_main_one_leaves_its_cache(folder: Path) -> None:
    options = ServiceOptions(lambda: (folder,))
    made = Served(folder / "second_model-F32.gguf", ServerOptions(service=options))
    try:
        text = "a long text that is read once " * 10
        made.post(CHAT, chat(text))
        assert answer(made, "First Model")
        usage = made.post(CHAT, chat(text))["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert cached > 0.9 * usage["prompt_tokens"]
        assert [one.beside for one in made.engine.resident] == [False, True]
    finally:
        made.close()


def test_where_memory_is_short_a_load_waits_for_the_answers(library: Served) -> None:
    assert answer(library, "First Model")
    submit, running = library.engine.submit, []

    def short(request: Any, deliver: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(request, Load) and not request.path.name.startswith("First"):
            running.append(library.running)
            if len(running) == 1:
                fault = Fault(FaultKind.MEMORY)
                deliver(Failed(0, "The model does not fit.", "Unload one.", fault=fault))
                return RequestHandle(request, deliver)
        return submit(request, deliver, *rest, **named)

    library.engine.submit = short  # type: ignore[method-assign]
    body = chat(model="First Model", max_tokens=900, n=16, ignore_eos=True, temperature=0)
    with ThreadPoolExecutor() as pool:
        long = pool.submit(library.post, CHAT, body)
        wait_until(lambda: library.running > 0)
        assert answer(library, "second_model-F32")
        assert {one["finish_reason"] for one in long.result(60)["choices"]} == {"length"}
    assert running[0] > 0
    assert running[1:] == [0]


def test_a_request_that_waits_for_a_swap_is_answered_after_it(folder: Path) -> None:
    """The owner of the main model chooses another one while a client is answered."""
    second = "second_model-F32"
    made = Served(
        folder / f"{second}.gguf", ServerOptions(service=ServiceOptions(lambda: (folder,)))
    )
    body = chat(model=second, max_tokens=600, ignore_eos=True, temperature=0)
    try:
        with ThreadPoolExecutor() as pool:
            long = pool.submit(made.post, CHAT, body)
            wait_until(lambda: made.running > 0)
            swap = pool.submit(made.load, folder / "First-Model-Q8_0.gguf")
            wait_until(lambda: len(made.engine.in_the_way()) == 1)
            asked = [
                pool.submit(made.post, CHAT, chat(model=model)) for model in ("", second)
            ]  # both find the model that is about to go
            streamed = pool.submit(made.stream, CHAT, chat(model=second))
            assert long.result(60)["choices"][0]["finish_reason"] == "length"
            assert swap.result(60).name == "First Model"
            assert asked[0].result(60)["model"] in ("First-Model-Q8_0", second)
            assert asked[1].result(60)["model"] == second
            assert streamed.result(60)[-1]["choices"][0]["finish_reason"] == "length"
    finally:
        made.close()


def test_the_owner_may_end_the_answers_that_a_swap_waits_for(folder: Path) -> None:
    made = Served(folder / "second_model-F32.gguf")
    body = chat(max_tokens=900, ignore_eos=True, temperature=0)
    try:
        with ThreadPoolExecutor() as pool:
            whole = pool.submit(made.http.post, CHAT, json=body)
            streamed = pool.submit(made.http.post, CHAT, json={**body, "stream": True})
            wait_until(lambda: made.running == 2)
            assert made.engine.in_the_way() == []  # no change waits
            swap = pool.submit(made.load, folder / "First-Model-Q8_0.gguf")
            wait_until(lambda: len(made.engine.in_the_way()) == 2)
            for handle in made.engine.in_the_way():
                handle.cancel()
            assert swap.result(60).name == "First Model"
            assert whole.result(60).status_code == 503
            assert whole.result(60).headers["retry-after"] == "1"
            assert '"code":"answer_ended"' in streamed.result(60).text
            assert made.engine.in_the_way() == []
    finally:
        made.close()


def test_the_main_model_of_its_own_server_sleeps_until_it_is_needed(folder: Path) -> None:
    path = folder / "second_model-F32.gguf"
    main = MainModel(Load(path, parallel=3), sleep_seconds=0.2)
    options = ServiceOptions(lambda: (folder,), loads=False, aliases=("it",), main=main)
    made = Served(options=ServerOptions(service=options))
    try:
        for times in range(2):
            assert made.get("/props")["is_sleeping"]
            first = made.get("/v1/models")["data"][0]
            assert (first["id"], first["status"]["value"]) == ("it", "sleeping")
            assert (
                f"tokonoma_generated_tokens_total {8 * times}\n" in made.http.get("/metrics").text
            )
            assert made.post(CHAT, chat(model=""))["model"] == "it"
            assert not made.get("/props")["is_sleeping"]
            assert made.get("/props")["total_slots"] == 3
            wait_until(lambda: made.get("/props")["is_sleeping"])
        assert made.post("/tokenize", {"content": "hello"})["count"]
        assert not made.get("/props")["is_sleeping"]
    finally:
        made.close()


def test_a_sleeping_model_that_cannot_be_loaded_is_tried_again(folder: Path) -> None:
    path = folder / "second_model-F32.gguf"
    options = ServiceOptions(main=MainModel(Load(path), sleep_seconds=5.0))
    made = Served(options=ServerOptions(service=options))
    whole = path.read_bytes()
    try:
        path.write_bytes(whole[:100])
        assert made.error(CHAT, chat(), 500)["error"]["code"] == "model_unusable"
        path.write_bytes(whole)
        assert answer(made, "")
    finally:
        path.write_bytes(whole)
        made.close()


def test_a_main_model_that_nobody_used_goes_to_sleep(folder: Path) -> None:
    path = folder / "second_model-F32.gguf"
    options = ServiceOptions(main=MainModel(Load(path), sleep_seconds=0.2))
    made = Served(path, ServerOptions(service=options))
    try:
        wait_until(lambda: not made.engine.resident)
        assert answer(made, "")
    finally:
        made.close()


def test_models_are_loaded_and_unloaded_by_name(folder: Path) -> None:
    options = ServiceOptions(lambda: (folder,))
    made = Served(folder / "second_model-F32.gguf", ServerOptions(service=options))

    def states() -> dict[str, str]:
        return {one["id"]: one["status"]["value"] for one in made.get("/models")["data"]}

    try:
        name = {"model": "First Model"}
        assert made.post("/models/load", name) == {"success": True}
        assert states() == {"second_model-F32": "loaded", "First-Model-Q8_0": "loaded"}
        assert made.post("/models/unload", name) == {"success": True}
        assert states()["First-Model-Q8_0"] == "unloaded"
        assert made.post("/models/unload", name) == {"success": True}
        made.error("/models/unload", {"model": "second_model-F32"}, 403)
        made.error("/models/load", {"model": "none such"}, 404)
        assert made.error("/models/load", {})["error"]["param"] == "model"
        assert answer(made, "")
    finally:
        made.close()


def test_tags_are_listed(folder: Path) -> None:
    options = ServiceOptions(lambda: (folder,), tags=("chat", "small"))
    made = Served(folder / "second_model-F32.gguf", ServerOptions(service=options))
    try:
        tags = [one["tags"] for one in made.get("/v1/models")["data"]]
        assert tags == [["chat", "small"], []]
    finally:
        made.close()
