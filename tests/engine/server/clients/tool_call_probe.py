"""The probe of canitoolcall against the server, where the model must call a tool if one is expected.

    python tool_call_probe.py ADDRESS MODEL

Whether a small model wants to call is its mood; what the server makes of its calls is not.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from canitoolcall.probe import BUILTIN_SCENARIOS, probe

address, model = sys.argv[1:]
scenarios = [
    replace(
        one,
        tool_choice="required"
        if one.expect.tool_names and one.tool_choice == "auto"
        else one.tool_choice,
        extra_body={**one.extra_body, "max_tokens": 400, "temperature": 0},
    )
    for one in BUILTIN_SCENARIOS
]
report = probe(f"{address}/v1", model, scenarios=scenarios, timeout_s=240, concurrency=2)
for one in report.outcomes:
    print(one.scenario_id, one.check, one.stream, one.status, one.detail or "", *one.warnings)
    if one.status != "pass":
        print("   ", one.observed)
sys.exit(any(one.status != "pass" for one in report.outcomes))
