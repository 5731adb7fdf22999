"""Records the cases of the JSON Schema Test Suite for the keywords that constrain answers.

python tests/recorders/schema_suite.py FOLDER

The folder is `json` of the unpacked source distribution of the package jsonschema.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "golden" / "json_schema_suite.json"
ORIGIN = "jsonschema 4.26.0 (source distribution), json/tests/draft2020-12"
KEYWORDS = (
    "additionalProperties", "allOf", "anchor", "anyOf", "boolean_schema", "const", "contains",
    "dependentRequired", "dependentSchemas", "enum", "exclusiveMaximum", "exclusiveMinimum",
    "if-then-else", "infinite-loop-detection", "items", "maxItems", "maxLength", "maxProperties",
    "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf",
    "pattern", "patternProperties", "prefixItems", "properties", "propertyNames", "ref", "required",
    "type", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
)  # fmt: skip


def main() -> None:
    """Write the golden file."""
    folder = Path(sys.argv[1]) / "tests" / "draft2020-12"
    groups: list[str] = []
    for keyword in KEYWORDS:
        text = (folder / f"{keyword}.json").read_text(encoding="utf-8")
        for group in json.loads(text):
            schema = group["schema"]
            if isinstance(schema, dict):
                schema.pop("$schema", None)
            row = {
                "keyword": keyword,
                "description": group["description"],
                "schema": schema,
                "valid": [test["data"] for test in group["tests"] if test["valid"]],
                "invalid": [test["data"] for test in group["tests"] if not test["valid"]],
            }
            groups.append(json.dumps(row, ensure_ascii=False))
    head = f'{{"origin": {json.dumps(ORIGIN)},\n"licence": "MIT, (c) 2012 Julian Berman", "groups": [\n'
    GOLDEN.write_text(head + ",\n".join(groups) + "\n]}\n", encoding="utf-8")
    print(f"{len(groups)} schemas")


if __name__ == "__main__":
    main()
