"""The probe of canitoolcall against the server: by one model, or by a model for each scenario.

    python tool_call_probe.py ADDRESS [MODEL]

Without a model each scenario is as it is, and answered by the model of its name, whose mood is
known. A model of any mood must call a tool where one is expected, and has a limit of tokens:
whether a small one wants to call is its own affair, what the server makes of its calls is not.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from canitoolcall.probe import BUILTIN_SCENARIOS, ProbeOutcome, Scenario, probe

address, *models = sys.argv[1:]


def forced(one: Scenario) -> Scenario:
    """A scenario in which a model that may call has to."""
    must = one.expect.tool_names and one.tool_choice == "auto"
    limits = {"max_tokens": 400, "parallel_tool_calls": len(one.expect.tool_names) > 1}
    return replace(
        one,
        tool_choice="required" if must else one.tool_choice,
        extra_body={**one.extra_body, **limits},
    )


outcomes: list[ProbeOutcome] = []
for one in BUILTIN_SCENARIOS:
    model, scenario = (models[0], forced(one)) if models else (one.id, one)
    report = probe(
        f"{address}/v1", model, scenarios=[scenario], timeout_s=240 if models else 60, concurrency=2
    )
    outcomes += report.outcomes
for one in outcomes:
    print(one.scenario_id, one.check, one.stream, one.status, one.detail or "", *one.warnings)
    if one.status != "pass":
        print("   ", one.observed)
sys.exit(any(one.status != "pass" or one.warnings for one in outcomes))
