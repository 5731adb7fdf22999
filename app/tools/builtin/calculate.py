"""The tool `calculate`: exact arithmetic, functions, percentages and units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from app.domain.tools import CallContext, ToolError, ToolSpec
from app.tools.builtin.tool import Changeless, in_thread, schema, spec

_DESCRIPTION = (
    "Calculate an expression exactly, also with percentages and units. Use it for every sum. "
    'Examples: "17.5 % of 2384", "sqrt(2) * sin(30 deg)", "5 ft 3 in to cm", "90 km/h to m/s".'
)
_SCHEMA = schema(
    ("expression",), expression=("string", 'such as "(3 + 4) * 2.5"; numbers as 1234.5')
)
_QUESTION = re.compile(r"^(?:what(?:'s| is)|how much is|calculate|compute)\s+", re.IGNORECASE)
_AROUND = 20  # characters shown on both sides of a fault


class Calculator(Changeless):
    """Calculates expressions; without any effect."""

    @property
    def spec(self) -> ToolSpec:
        """The tool as it is offered."""
        return spec("calculate", _DESCRIPTION, _SCHEMA)

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """The expression and its result; raises ToolError, which names the place of a fault."""
        del context
        return await in_thread(lambda _: answer(str(arguments["expression"])))


def answer(expression: str) -> str:
    """What the model reads of a calculation; raises ToolError."""
    from app.tools.builtin.calculator.faults import CalculationError
    from app.tools.builtin.calculator.parser import calculate

    expression = _QUESTION.sub("", expression.strip(), count=1)
    try:
        made = calculate(expression)
    except CalculationError as error:
        where = _place(expression, error.at)
        raise ToolError(f"This cannot be calculated: {error}{where}.") from None
    left = " ".join(expression.split()).rstrip("=? ")
    sign = " " if made.text.startswith("≈") else " = "
    notes = "".join(f"\nNote: {note}." for note in made.notes)
    return f"{left}{sign}{made.text}{notes}"


def _place(expression: str, at: int) -> str:
    """Where in the expression a fault is."""
    if at < 0:
        return ""
    if at >= len(expression.rstrip("=? ")):
        return f', after "{expression[-_AROUND:]}"' if expression else ""
    return f', at character {at + 1}: "{expression[at : at + _AROUND]}"'
