"""Compliance with the published schemas of three APIs: the cases of llm-comply against the server.

What depends on a model's mood is run with a scripted one. The cases with pictures fail until models
here see pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import llm_comply
import pytest
from llm_comply.config import ComplianceConfig
from llm_comply.http import close_client
from llm_comply.result import TestStatus as Status
from llm_comply.runner import TestRunner as Runner
from llm_comply.schema import SpecLoader
from llm_comply.tests import get_tests

import scripted_model
from serving import Served

SPECS = Path(llm_comply.__file__).parent / "specs"
FORMATS = {
    "openai-chat": "openai_chat.json",
    "open-responses": "openresponses.json",
    "anthropic": "anthropic.json",
}
# A case is left out for models without these names, which are said to reason.
REASONS = "gpt-5-claude-opus"
REASONING = ("chat-reasoning-summary", "reasoning-summary", "anth-thinking-display")
PICTURES = ("chat-image-input", "image-input", "anth-image-input")
CASES = [(form, case.id) for form in FORMATS for case in get_tests(form) if case.id not in PICTURES]
pytestmark = pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Served]]:
    """A server with a model that reasons, and one with a model that does not."""
    folder = tmp_path_factory.mktemp("comply")
    plain = scripted_model.write(folder / "scripted.gguf")
    thinks = scripted_model.write(folder / f"{REASONS}.gguf", thoughts=scripted_model.THOUGHTS)
    made = {False: Served(plain), True: Served(thinks)}
    yield made
    close_client()
    for one in made.values():
        one.close()


@pytest.mark.parametrize(("form", "case"), CASES)
def test_a_case_passes(servers: dict[bool, Served], form: str, case: str) -> None:
    reasons = case in REASONING
    config = ComplianceConfig(
        base_url=f"{servers[reasons].server.address}/v1",
        api_key="none",
        model=REASONS if reasons else "scripted",
        filter_ids=[case],
        verbose=True,
    )
    spec = SpecLoader(str(SPECS / FORMATS[form]))
    (result,) = Runner(config, get_tests(form), spec).run_all().results
    assert result.status is Status.PASSED, (result.errors, result.response)
    assert not result.warnings


def test_all_three_formats_have_cases() -> None:
    assert len(CASES) == 28
    assert all(any(case in (form, one) for form, one in CASES) for case in REASONING)
