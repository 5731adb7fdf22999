"""Texts of the window: all pass through tr where they are shown, and follow the rules of style."""

from __future__ import annotations

import ast
import re
import string
from itertools import pairwise
from pathlib import Path

import pytest

import window_texts
from app.downloads import catalog
from app.ui.chat.empty_view import SUGGESTIONS

ROOT = Path(__file__).parents[2]
FOLDERS = ("app/ui", "app/chat", "app/library", "app/state")
# Strings that look like texts of the window, and are none.
NO_TEXTS = {
    "app/chat/answering/chat_models.py": {"chat model"},  # a kind of notice
    "app/chat/controller.py": {"user files", "own files"},  # names of threads
    "app/chat/documents/indexing.py": {"document index"},  # name of a thread
    "app/chat/documents/long_documents.py": {"no room for a part of the document"},  # technical
    "app/chat/documents/passage_documents.py": {"passage documents"},  # name of a thread
    "app/chat/requests/prompts.py": {
        "You began this conversation with these words:",
    },  # for the model
    "app/chat/documents/retrieval.py": {"no index"},  # technical
    "app/chat/documents/rewritten.py": {"{…} 2.md"},  # file name
    "app/chat/store_faults.py": {"newer store"},  # a kind of notice
    "app/chat/chat_list/titles.py": {  # for the model, and of its answers
        "Write a title for this conversation: two to six words that name its topic, in the language "
        "of my first message. Reply with the title only.",
        r"(?:I['\u2019](?:m|ll|d)|I (?:am|can|can['\u2019]t|cannot|need|apologi[sz]e)|You['\u2019]re"
        r"|Sorry|Sure|Yes|Certainly|Of course)\b",
    },
    "app/chat/transfer/json_stream.py": {"Unterminated string"},  # of the parser's errors
    "app/chat/transfer/markdown_export.py": {"title: {…}", "date: {…}"},  # keys of a format
    "app/chat/transfer/open_webui.py": {'<details type="', "^(?:>|&gt;) ?"},
    "app/chat/transfer/values.py": {
        r"(\d{4})-(\d{1,2})-(\d{1,2}) ?@ ?(\d{1,2})h ?(\d{1,2})m(?: ?(\d{1,2})s(?: ?(\d{1,3})ms)?)?",
    },
    "app/chat/tools/calls.py": {  # what the model reads
        "The user did not allow this call. Go on without it, or ask what to do instead.",
        "The user stopped this call.",
        "The call failed: {…}.",
        "Only {…} calls can be made at once. Make this one later if needed.",
        "The call took longer than {…} seconds and was stopped.",
        "The tools are: {…}.",
        "No tools can be called now.",
        "There is no tool {…}. {…}",
        "This tool was changed meanwhile, and was not called.",
    },
    "app/chat/tools/kept_files.py": {"({…} not kept.)", "1 file was", "{…} files were"},
    "app/chat/tools/running_servers.py": {
        *("tool servers.json", "tool server keys.json", "tool logins.json"),  # names of files
        "{…} was changed and waits for the user's consent.",  # this and the next for the model
        "{…} could not be started again: {…}",
        "This tool is another one since its server was started again.",
    },
    "app/chat/tools/server_offers.py": {"server resource"},  # a kind of notice
    "app/chat/tools/servers.py": {"The server of this tool is not running."},  # for the model
    "app/chat/tools/services.py": {
        "replaced files",  # name of a folder
        "This chat has no documents that can be searched.",  # this and the next for the model
        "The documents of this chat cannot be searched now.",
        "The text of {…} cannot be read: {…}.",
        "the folder of replaced files as {…}",
    },
    "app/chat/tools/sources.py": {"tool keys"},  # name of a thread
    "app/chat/tools/tools.py": {"tool servers.json"},  # name of a file
    "app/chat/updates.py": {"other version"},  # a kind of notice
    "app/library/better_model.py": {"better model"},  # a kind of notice
    "app/library/gpu_support.py": {"gpu support", "GPU support"},  # a kind of notice, a thread
    "app/state/faults.py": {"no vocabulary"},  # what a fault is about
    "app/state/observable.py": {"{…} is read-only: call the method that sets it"},  # a bug
    "app/ui/menu_bar.py": {"Minimize"},  # a text of Qt's own catalogs
    "app/ui/panel/adapters.py": {"{…} (*.gguf *.GGUF adapter_model.safetensors)"},  # patterns
    "app/ui/blocks/typesetting.py": {  # internal reasons; the formula's source is shown instead
        r'viewBox="(\S+) (\S+) (\S+) (\S+)"',
        "too long",
        "unknown command",
        "nested too deeply",
    },
    "app/ui/chat/composer/format_words.py": {  # examples of formats
        '{"type": "object", "properties": {"name": {"type": "string"}}}',
        'root ::= "yes" | "no"',
    },
    "app/ui/export/pdf.py": {"Tokonoma"},
    "app/ui/presets/editor.py": {"{{date}}, {{time}}, {{language}}"},  # names of variables
    "app/ui/presets/page.py": {"{…} (*.json *.JSON *.png *.PNG)"},  # patterns
    "app/ui/settings/shortcuts.py": {"Return", "Enter"},  # names of keys
    "app/ui/settings/updates.py": {  # names, and commands for a terminal
        *("Tokonoma {…}", "Windows", "flatpak update", "sudo {…} install {…}"),
    },
    "app/ui/theme/palette.py": {"high contrast"},  # a value of the settings
    "app/ui/theme/stylesheet.py": {"high contrast"},
    "app/ui/theme/theme.py": {  # names of fonts and of a style
        *("Inter", "JetBrains Mono", "Segoe UI", "SF Pro Text", "Noto Sans", "DejaVu Sans"),
        *("Cascadia Mono", "SF Mono", "Noto Sans Mono", "DejaVu Sans Mono", "Fusion"),
        *("Microsoft YaHei UI", "PingFang SC", "Noto Sans CJK SC", "Noto Sans SC"),
        *("Source Han Sans SC", "Yu Gothic UI", "Meiryo UI", "Hiragino Sans", "Noto Sans CJK JP"),
        *("Noto Sans JP", "Source Han Sans JP", "Malgun Gothic", "Apple SD Gothic Neo"),
        *("Noto Sans CJK KR", "Noto Sans KR", "Source Han Sans KR"),
    },
    "app/ui/transcript/message/consent.py": {'{"name": "value"}'},  # an example of JSON
    "app/ui/transcript/message/controls.py": {
        "link {…} {…}",
        "button {…} {…}",
        "word {…}",
        "tool {…}",
    },  # keys
    "app/ui/transcript/message/kept_files.py": {"show {…}", "save {…}"},  # keys
    "app/ui/transcript/paint.py": {"tool {…}"},
    "app/ui/file_dialogs.py": {
        "{…} (*.gguf *.GGUF)",
        "Markdown (*.md)",
        "Word (*.docx)",
        "JSON (*.json)",
        "JSON (*.json *.jsonc)",
    },
    "app/ui/window.py": {"{…} — Tokonoma", "Tokonoma"},
}
# Modules whose other strings are HTML or SQL.
OTHER_LANGUAGES = {
    "app/chat/transfer/ollama.py",
    "app/ui/export/html.py",
    "app/chat/documents/embedding_prompts.py",  # for models
    "app/chat/documents/table_prompts.py",  # for models
}
# Modules that pass texts of a table to tr: no literals can stand there.
FROM_TABLES = {
    "app/ui/comparison/card.py",
    "app/ui/comparison/column.py",
    "app/ui/chat/empty_view.py",
    "app/ui/library/model_settings_card.py",
    "app/ui/library/rows.py",
    "app/ui/menu_bar.py",
    "app/ui/presets/words.py",
    "app/ui/settings/fields.py",
    "app/ui/settings/row.py",
    "app/ui/settings/shortcuts.py",
    "app/ui/transcript/message/answer_card.py",
    "app/ui/window.py",
}


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def literals(call: ast.Call) -> list[str]:
    """The texts of a call of tr or trn."""
    count = 2 if getattr(call.func, "id", "") == "trn" else 1
    return [
        part.value
        for part in call.args[:count]
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


def shown_texts() -> list[tuple[str, str]]:
    """Every text of the window with its place."""
    rows = [row.split(": ", 1) for row in window_texts.listing(ROOT).splitlines()]
    return [(place, ast.literal_eval(text)) for place, text in rows]


def test_every_text_of_the_window_passes_through_tr() -> None:
    missing = [
        f"{name_of(path)}:{text.line}: {text.text!r}"
        for path in modules(*FOLDERS)
        if name_of(path) not in OTHER_LANGUAGES
        for text in window_texts.texts(
            path.read_text(encoding="utf-8"), window_texts.tables_of(name_of(path))
        )
        if not text.shown and text.text not in NO_TEXTS.get(name_of(path), ())
    ]
    assert missing == []


def test_sentences_are_joined_by_their_helper() -> None:
    """Between two sentences stands no space in Chinese: `sentences` knows, a format string not."""
    joined = [
        f"{name_of(path)}:{node.lineno}"
        for path in modules("app")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.JoinedStr)
        and any(
            isinstance(before, ast.Constant) and before.value == " " and is_advice(after)
            for before, after in pairwise(node.values)
        )
    ]
    assert joined == []


def is_advice(part: ast.expr) -> bool:
    """Whether a part of a format string is a sentence: the advice on an error, or a text of tr."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    return (isinstance(value, ast.Attribute) and value.attr.endswith("remedy")) or (
        isinstance(value, ast.Call) and getattr(value.func, "id", "") in ("tr", "trn")
    )


def test_the_list_of_other_strings_has_none_that_is_gone() -> None:
    gone = {
        name: left
        for name, others in NO_TEXTS.items()
        if (
            left := others
            - {text.text for text in window_texts.texts((ROOT / name).read_text(encoding="utf-8"))}
        )
    }
    assert gone == {}


def test_no_text_is_looked_up_at_import() -> None:
    early = {name_of(path): window_texts.calls_at_import(tree_of(path)) for path in modules("app")}
    assert {name: lines for name, lines in early.items() if lines} == {}


def test_tr_is_given_literals_so_that_a_catalog_can_be_made_of_them() -> None:
    others = [
        f"{name_of(path)}:{call.lineno}"
        for path in modules("app")
        if name_of(path) not in FROM_TABLES
        for call in window_texts.calls(tree_of(path))
        if len(literals(call)) != (2 if getattr(call.func, "id", "") == "trn" else 1)
    ]
    assert others == []


def test_every_name_in_a_text_has_a_value() -> None:
    wrong: list[str] = []
    for path in modules("app"):
        for call in window_texts.calls(tree_of(path)):
            given = {keyword.arg for keyword in call.keywords}
            if None in given:  # **values
                continue
            plural = len(literals(call)) == 2
            named = {
                name for text in literals(call) for _, name, _, _ in string.Formatter().parse(text)
            } - {None}
            if (literals(call) and named - {"count"} != given - {"count"}) or (
                not plural and ("count" in named) != ("count" in given)
            ):
                wrong.append(f"{name_of(path)}:{call.lineno}: {named ^ given}")
    assert wrong == []


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("rule", "pattern"),
    [
        ("no exclamation marks", r"!"),
        ("an ellipsis is one character", r"\.\.\."),
        ("no spaces at the ends, and no two in a row", r"^ | $|  "),
        ("a chat is called a chat", r"(?i)\bconversations?\b"),
        ("the user is called you", r"(?i)\bthe user\b|\bplease\b"),
        ("this computer, not this machine", r"(?i)\bmachines?\b"),
    ],
)
def test_texts_follow_the_rules_of_style(rule: str, pattern: str) -> None:
    wrong = [f"{place}: {text!r}" for place, text in shown_texts() if re.search(pattern, text)]
    assert wrong == [], rule


# --- the finder itself --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        'button = Button("Delete all")',
        'button.setText("Cancel")',
        'label(f"{count} models")',
        'words = {Role.USER: "You and me"}',
        'label("Save now" if fresh else tr("Save"))',
        'tr(name="Loading models")',
    ],
)
def test_a_text_without_tr_is_found(source: str) -> None:
    assert [text.shown for text in window_texts.texts(source)].count(False) == 1


@pytest.mark.parametrize(
    "source",
    [
        '"""Opens a window."""',
        'class Phase(Enum):\n    LOADING = "is being loaded"',
        '_log.warning("the file %s is damaged", name)',
        'assert ready, "the view is not ready"',
        'value = cast("dict[str, object]", stored)',
        'label.setStyleSheet("color: red; margin: 0;")',
        'state: "Some Type" = make()',
        'key = "picker_loading"',
        'tr("Loading models")',
        'trn("{count} model", "{count} models", many)',
    ],
)
def test_other_strings_are_not_taken_for_texts(source: str) -> None:
    assert [text for text in window_texts.texts(source) if not text.shown] == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('WORDS = tr("Loading")', [1]),
        ('class Row:\n    words = tr("Loading")', [2]),
        ('def show(words=tr("Loading")):\n    return words', [1]),
        ('class Row:\n    def show(self, *, words=trn("one", "many", 2)):\n        pass', [2]),
        ('NAMES = [tr("Loading") for _ in range(2)]', [1]),
        ('def show():\n    return tr("Loading")', []),
        ('SHOW = lambda: tr("Loading")', []),
    ],
)
def test_a_lookup_at_import_is_found(source: str, lines: list[int]) -> None:
    assert window_texts.calls_at_import(ast.parse(source)) == lines


def test_the_listing_has_texts_of_tables_too() -> None:
    texts = {text for _, text in shown_texts()}
    assert {"Theme", "Switch theme", "Auto", "Send", *SUGGESTIONS} <= texts
    assert catalog.load()[0].description in texts
    assert {"new", "Details"} & texts == {"Details"}
