"""The built-in tools together, joined with others: names, schemas, effects, faults, searches."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.domain.builtin_words import NAMES, about_of, title_of
from app.domain.tools import CallContext, Effect, ToolError, ToolOutcome, ToolSource, ToolSpec
from app.tools.builtin.source import BuiltInTools
from app.tools.joined import JoinedTools
from app.tools.sandbox.tool import PythonTool
from app.tools.services import Found
from tool_services import RecordedServices

CONTEXT = CallContext(7)
ROOT = Path(__file__).parents[3]
EFFECTS = {
    "calculate": set(),
    "date_and_time": set(),
    "read_file": {Effect.READS},
    "list_folder": {Effect.READS},
    "write_file": {Effect.WRITES},
    "search_documents": {Effect.READS},
    "search_chats": {Effect.READS},
    "fetch_page": {Effect.NETWORK},
    "search_web": {Effect.NETWORK},
}


class Others:
    """Tools of a server."""

    def __init__(self, *specs: ToolSpec) -> None:
        self.specs = specs
        self.called: list[str] = []

    def tools(self) -> Sequence[ToolSpec]:
        return self.specs

    def changes(self, id: str, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        return [f"changes {id}"]

    def scope(self, id: str, arguments: Mapping[str, Any]) -> str:
        return f"scope {id}"

    async def call(
        self, id: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutcome:
        self.called.append(id)
        return ToolOutcome("done")


def source(services: RecordedServices | None = None) -> BuiltInTools:
    return BuiltInTools(services or RecordedServices())


def call(id: str, services: RecordedServices | None = None, **arguments: Any) -> str:
    return asyncio.run(source(services).call(f"builtin/{id}", arguments, CONTEXT)).text


def test_every_tool_has_its_effects_and_a_valid_name_and_schema() -> None:
    specs = source().tools()
    assert {spec.name: set(spec.effects) for spec in specs} == EFFECTS
    for spec in specs:
        form = json.loads(spec.schema)
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", spec.name)
        assert spec.id == f"builtin/{spec.name}"
        assert (spec.server, spec.origin) == ("", "")
        assert set(form.get("required", ())) <= set(form["properties"])
        assert form["additionalProperties"] is False
        assert all(each["description"] for each in form["properties"].values())


def test_every_description_is_short_and_its_example_fits_the_schema() -> None:
    for spec in source().tools():
        assert len(spec.description) + len(spec.schema) < 900, spec.name
        if spec.name == "calculate":  # its examples are expressions
            continue
        example = json.loads(re.findall(r"Example: (\{.*?\})", spec.description)[0])
        assert set(example) <= set(json.loads(spec.schema)["properties"])


def test_they_are_a_source_of_tools() -> None:
    made: ToolSource = source()
    assert len(made.tools()) == len(EFFECTS)


def test_arguments_are_fitted_before_a_call() -> None:
    assert call("calculate", Expression=" 1 + 1 ", reason="why not") == "1 + 1 = 2"
    services = RecordedServices()
    services.found = [Found("Lease", "three months", "page 3"), Found("Chat", "x" * 4000)]
    text = call("search_documents", services, query="notice", count="2")
    assert services.asked == [("passages", 7, "notice", 2)]
    assert text.startswith("(1) Lease, page 3\nthree months\n\n(2) Chat\nxxx")
    assert len(text) < 3100


def test_chats_are_searched_with_limits() -> None:
    services = RecordedServices()
    assert call("search_chats", services, query="hotel", count=500) == 'No message fits "hotel".'
    assert services.asked == [("chats", "hotel", 20)]
    with pytest.raises(ToolError, match="1 to 1,000 characters"):
        call("search_chats", services, query=" ")


def test_a_wrong_argument_is_an_error_that_says_what_to_send() -> None:
    with pytest.raises(ToolError, match=r'missing: "expression"\. Send \{"expression": "\.\.\."\}'):
        call("calculate")


def test_a_tool_with_a_problem_is_not_called() -> None:
    with pytest.raises(ToolError, match="No web search service is set up"):
        call("search_web", query="x")


def test_a_call_that_will_fail_says_so_before_consent_and_has_no_scope() -> None:
    made = source()
    with pytest.raises(ToolError, match="folder"):
        made.changes("builtin/write_file", {"path": "a"}, CONTEXT)
    assert made.scope("builtin/fetch_page", {"address": "file:///x"}) == ""
    assert made.scope("builtin/fetch_page", {"address": "https://a.org/b"}) == "a.org"
    with pytest.raises(ToolError, match="There is no tool"):
        made.changes("builtin/none", {}, CONTEXT)


def test_a_fault_of_a_tool_is_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RecordedServices):
        async def chats(self, query: str, count: int) -> Sequence[Found]:
            raise KeyError(query)

    with pytest.raises(ToolError, match="The tool failed: KeyError"):
        call("search_chats", Broken(), query="private words")
    assert "a built-in tool failed: search_chats" in caplog.text


def test_an_unknown_tool_is_said_to_be_none() -> None:
    with pytest.raises(ToolError, match='There is no tool "builtin/rm"'):
        call("rm")


def spec(id: str, name: str, server: str = "s") -> ToolSpec:
    return ToolSpec(id, name, name, "", "{}", server)


def test_joined_tools_keep_the_built_in_names_and_differ_in_all() -> None:
    shadow = [
        spec("s/calculate", "calculate"),
        spec("s/Calculate", "CALCULATE"),
        spec("builtin/calculate", "x"),
    ]
    odd = [
        spec("t/a", "ta\u00df k!", "t"),
        spec("t/long", "n" * 90, "t"),
        spec("t/b", "calculate", "t"),
    ]
    joined = JoinedTools([source(), Others(*shadow), Others(*odd)])
    names = {each.id: each.name for each in joined.tools()}
    assert names["builtin/calculate"] == "calculate"
    assert (names["s/calculate"], names["s/Calculate"]) == ("s_calculate", "s_CALCULATE_2")
    assert names["t/b"] == "t_calculate"
    assert len({name.casefold() for name in names.values()}) == len(names) == len(EFFECTS) + 5
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names.values())


def test_a_call_goes_to_the_source_of_its_tool() -> None:
    server = Others(spec("s/a", "a"), spec("builtin/calculate", "x"))
    joined = JoinedTools([source(), server])
    assert asyncio.run(joined.call("s/a", {}, CONTEXT)).text == "done"
    assert joined.changes("s/a", {}, CONTEXT) == ["changes s/a"]
    assert joined.scope("s/a", {}) == "scope s/a"
    assert (
        asyncio.run(joined.call("builtin/calculate", {"expression": "1+1"}, CONTEXT)).text
        == "1+1 = 2"
    )
    assert server.called == ["s/a"]
    with pytest.raises(ToolError, match="no longer there"):
        asyncio.run(joined.call("s/b", {}, CONTEXT))
    assert (joined.changes("s/b", {}, CONTEXT), joined.scope("s/b", {})) == ((), "")


def test_offering_the_tools_loads_nothing_that_only_a_call_needs() -> None:
    code = (
        "import sys; from app.tools.builtin.source import BuiltInTools;"
        "from app.tools.services import Services;"
        "BuiltInTools(None).tools(); print(*sys.modules)"
    )
    listed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(listed.stdout.split())
    heavy = {"httpcore", "httpx", "chardet", "numpy", "zoneinfo", "sqlite3", "PySide6.QtWidgets"}
    assert "app.tools.builtin.fetch_page" in loaded
    assert loaded & heavy == set()
    assert not any(name.startswith("app.documents") for name in loaded)


def test_every_built_in_tool_has_words_for_the_window() -> None:
    made = [*source().tools(), *PythonTool().tools()]
    assert tuple(each.name for each in made) == NAMES
    for each in made:
        assert (each.title, each.about) == (title_of(each.name), about_of(each.name))
        assert each.title
        assert each.about.endswith(".")
    assert len({each.title for each in made} | {each.about for each in made}) == 2 * len(made)
    assert (title_of("lookup"), about_of("lookup")) == ("", "")
