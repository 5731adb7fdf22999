"""Code without a fence in a message of the user: found in many languages, and not in prose."""

from __future__ import annotations

import pytest

from app.markdown.blocks import Code, Paragraph
from app.markdown.stream import PlainText
from app.markdown.unfenced_code import code_runs

CODE = {
    "python": "def median(values):\n    ordered = sorted(values)\n    return ordered[len(ordered) // 2]",
    "python class": "class Point:\n    x: int\n    y: int\n\n    def norm(self):\n        return (self.x ** 2 + self.y ** 2) ** 0.5",
    "python script": "import os\nimport sys\n\nfor name in os.listdir('.'):\n    print(name)",
    "python indented": "    if ready:\n        go()\n    else:\n        wait()",
    "assignments": "a = 1\nb = a + 2\nprint(a, b)",
    "javascript": "const add = (a, b) => a + b;\nconsole.log(add(1, 2));",
    "typescript": "interface User {\n  name: string;\n  age?: number;\n}\n\nexport function greet(user: User): string {\n  return `Hi ${user.name}`;\n}",
    "react": 'function App() {\n  return (\n    <div className="app">\n      <h1>Hello</h1>\n    </div>\n  );\n}',
    "c": '#include <stdio.h>\n\nint main(void) {\n    printf("hello\\n");\n    return 0;\n}',
    "c++": "std::vector<int> v{1, 2, 3};\nfor (auto& x : v) {\n    std::cout << x << '\\n';\n}",
    "java": 'public class Main {\n    public static void main(String[] args) {\n        System.out.println("hi");\n    }\n}',
    "rust": 'fn main() {\n    let v = vec![1, 2];\n    println!("{:?}", v);\n}',
    "go": 'package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Println("hi")\n}',
    "sql": "SELECT name, count(*)\nFROM users\nWHERE age > 18\nGROUP BY name",
    "shell": '#!/bin/sh\nset -e\nfor f in *.txt; do\n  echo "$f"\ndone',
    "terminal": "$ pip install torch\n$ python main.py --help",
    "json": '{\n  "a": 1,\n  "b": [true, null]\n}',
    "yaml": 'services:\n  web:\n    image: nginx\n    ports:\n      - "80:80"',
    "yaml list": "- name: x\n  value: y\n- name: z\n  value: w",
    "html": "<ul>\n  <li>One</li>\n  <li>Two</li>\n</ul>",
    "css": ".card {\n  color: red;\n  margin: 0 auto;\n}",
    "ini": "[server]\nhost = 127.0.0.1\nport = 8080",
    "traceback": 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    main()\nZeroDivisionError: division by zero',
    "diff": "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n-a = 1\n+a = 2",
    "tree": "app\n├── main.py\n└── ui\n    └── window.py",
    "columns": "NAME      READY   STATUS\nweb-1     1/1     Running\nweb-2     0/1     Pending",
}
PROSE = {
    "letter": "Dear Ms Weber,\n\nthank you for your letter of 3 March. I would like to cancel the contract,\nand ask you to confirm this in writing.\n\nKind regards\nAnna Schmidt\nHauptstrasse 5\n12345 Berlin",
    "one line": "Why does the sky look blue?",
    "two lines": "Translate this into French:\nWhere is the station?",
    "poem": "Whose woods these are I think I know;\n  His house is in the village though;\nHe will not see me stopping here\n  To watch his woods fill up with snow.",
    "haiku": "An old silent pond\n  A frog jumps into the pond\n    Splash! Silence again",
    "list": "- milk\n- bread\n- eggs",
    "nested list": "1. Go to the shop\n   - buy milk\n   - buy bread\n2. Cook",
    "headings": "Topic: the weather\nTone: friendly\nLength: 200 words",
    "email": "From: Anna\nTo: Ben\nSubject: Lunch",
    "dialogue": "Anna: Are you coming?\nBen: Yes, in an hour.\nAnna: Good!",
    "sums": "I have 3 apples and 4 pears.\nHow many fruits do I have (in total)?",
    "chinese": "请把下面的句子翻译成英文：\n今天天气很好，我们去公园吧。",
    "japanese": "次の文を英語に訳してください。\n今日は天気がいいです。",
    "arabic": "ترجم هذه الجملة إلى الإنجليزية:\nالطقس جميل اليوم.",
    "recipe": "200 g flour\n2 eggs\na pinch of salt\n300 ml milk",
    "questions": "For each word give a synonym:\nhappy\nsad\nangry",
    "if": "If it rains we stay at home;\nif not, we go for a walk (perhaps by the lake).",
    "numbered": "a) Paris\nb) Rome\nc) Madrid",
    "import": "import taxes are high this year,\nfrom what I read in the papers.",
    "class": "class starts at nine,\nreturn the books before that.",
    "two spaces": "He said so.  She did not.\nThey left.  It rained.\nThe end.  Really.",
    "links": "Look at https://example.org/a?b=c and\nhttps://example.org/d, which is better?",
    "maths": "What is 3 + 4 * 2?\nAnd what is the root of 16?",
}


@pytest.mark.parametrize("name", CODE)
def test_code_is_found_whole(name: str) -> None:
    lines = CODE[name].split("\n")
    assert code_runs(lines) == [(0, len(lines))]
    question = ["Why does this not work?", "", *lines, "", "Please explain it step by step."]
    assert code_runs(question) == [(2, 2 + len(lines))]


@pytest.mark.parametrize("name", PROSE)
def test_prose_is_no_code(name: str) -> None:
    assert code_runs(PROSE[name].split("\n")) == []


def test_a_message_shows_its_code_as_code_and_keeps_its_source() -> None:
    text = f"Why?\n\n{CODE['python script']}\n\nIt is slow.\n```\nfenced\n```"
    own = PlainText(text)
    assert [type(block) for block in own.blocks] == [Paragraph, Code, Paragraph, Code]
    shown = own.blocks[1]
    assert isinstance(shown, Code)
    assert (shown.text, shown.language, shown.closed) == (CODE["python script"], "", True)
    assert own.source(shown.place.start, shown.place.end) == CODE["python script"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (" " * 2000 + "x", False),
        ("x" * 2000 + " a" * 300, False),
        ("(" * 2000, True),
        ("a" + " " * 600 + "=", False),
        ("<a " * 600, False),
    ],
)
def test_long_lines_do_not_make_the_expressions_backtrack(line: str, code: bool) -> None:
    """These took minutes once."""
    assert bool(code_runs([line] * 900)) == code


def test_a_long_text_is_judged_by_its_beginning() -> None:
    lines = (CODE["python"] + "\n\n").split("\n") * 400
    assert code_runs(lines) == [(0, len(lines) - 2)]
    assert code_runs((PROSE["letter"] + "\n\n").split("\n") * 400) == []
