"""Records the cases of the JSON Schema Test Suite for the keywords that constrain answers.

python tests/recorders/schema_suite.py PATH_OF_ITS_GIT_REPOSITORY
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "golden" / "json_schema_suite.json"
FOLDER = "tests/draft2020-12"
KEYWORDS = (
    "additionalProperties", "allOf", "anyOf", "boolean_schema", "const", "enum", "exclusiveMaximum",
    "exclusiveMinimum", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
    "minLength", "minProperties", "minimum", "multipleOf", "oneOf", "pattern", "patternProperties",
    "prefixItems", "properties", "ref", "required", "type",
)  # fmt: skip


def main() -> None:
    """Write the golden file."""
    repository = sys.argv[1]

    def git(*arguments: str) -> str:
        command = ["git", "-C", repository, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    groups: list[str] = []
    for keyword in KEYWORDS:
        for group in json.loads(git("show", f"HEAD:{FOLDER}/{keyword}.json")):
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
    commit = git("rev-parse", "HEAD").strip()
    origin = f"https://github.com/json-schema-org/JSON-Schema-Test-Suite/tree/{commit}/{FOLDER}"
    head = f'{{"origin": {json.dumps(origin)},\n"licence": "MIT, (c) 2012 Julian Berman", "groups": [\n'
    GOLDEN.write_text(head + ",\n".join(groups) + "\n]}\n", encoding="utf-8")
    print(f"{len(groups)} schemas")


if __name__ == "__main__":
    main()
