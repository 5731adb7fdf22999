"""Settings page: one row per setting, committed changes, rejected input, reset, licences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractButton, QApplication, QLineEdit, QPlainTextEdit, QWidget
from pytestqt.qtbot import QtBot

from app.settings.contacts import contacts
from app.settings.table import GROUPS, SETTINGS, Settings, with_own, without_own
from app.settings.used_sampling import Origin, UsedValue
from app.state.connections import ConnectionsState
from app.state.gpu import GPUState
from app.state.snapshots import SavedSnapshots, SessionState
from app.state.updates import UpdateState
from app.ui.settings.about import Licence, LicenceView, licences
from app.ui.settings.fields import LineField, NumberField, Segments, TextField
from app.ui.settings.page import ABOUT, Preferences
from app.ui.settings.row import PreferenceRow
from app.ui.theme.palette import PALETTES
from app.ui.theme.theme import Theme
from app.ui.widgets.controls import TextButton
from engine import DeviceFault, DeviceInfo, DeviceRefusal
from stage import flush, until

SHOWN = [name for name, setting in SETTINGS.items() if setting.group in GROUPS]


class Page:
    """The settings page with the changes it emitted."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.session_state = SessionState()
        self.gpu = GPUState()
        self.preferences = Preferences(
            settings, self.session_state, ConnectionsState(), self.gpu, UpdateState()
        )
        self.emitted: list[tuple[str, object]] = []
        self.preferences.changed.connect(self._change)
        self.preferences.given_up.connect(self._give_up)

    def _change(self, name: str, value: object) -> None:
        """Apply a change and show the settings again, as the app does."""
        self.emitted.append((name, value))
        self.settings = replace(self.settings, **{name: value})
        self.preferences.show_settings(self.settings)

    def _give_up(self, name: str) -> None:
        self.settings = without_own(self.settings, name)
        self.preferences.show_settings(self.settings)

    @property
    def shown(self) -> dict[str, PreferenceRow]:
        """The rows that are shown: an address only for a provider that needs one."""
        rows = self.preferences.rows
        return {name: row for name, row in rows.items() if not row.isHidden()}

    def row(self, name: str) -> PreferenceRow:
        return self.preferences.rows[name]

    def line(self, name: str) -> QLineEdit:
        field = self.row(name).field
        assert isinstance(field, LineField)
        return field.line

    def editor(self, name: str) -> QPlainTextEdit:
        field = self.row(name).field
        assert isinstance(field, TextField)
        return field.editor

    def type(self, qtbot: QtBot, name: str, text: str, *, leave: bool = True) -> None:
        line = self.line(name)
        line.setFocus()
        line.selectAll()
        qtbot.keyClicks(line, text) if text else qtbot.keyClick(line, Qt.Key.Key_Delete)
        if leave:
            qtbot.keyClick(line, Qt.Key.Key_Return)


@pytest.fixture
def theme(qapp: QApplication) -> Iterator[Theme]:
    made = Theme(qapp, "light")
    yield made
    made.deleteLater()


@pytest.fixture
def page(qtbot: QtBot, theme: Theme) -> Iterator[Page]:
    made = Page(Settings())
    qtbot.addWidget(made.preferences)
    made.preferences.resize(816, 760)
    made.preferences.show()
    qtbot.waitExposed(made.preferences)
    yield made
    made.preferences.close()
    made.session_state.deleteLater()
    flush()


def test_every_setting_with_a_label_has_one_row_in_its_section(page: Page) -> None:
    assert list(page.preferences.rows) == SHOWN
    assert list(page.preferences.headings) == [*GROUPS, ABOUT]
    tops = {
        group: heading.mapTo(page.preferences, heading.rect().topLeft()).y()
        for group, heading in page.preferences.headings.items()
    }
    order = [*GROUPS, ABOUT]
    for name, row in page.shown.items():
        top = row.mapTo(page.preferences, row.rect().topLeft()).y()
        group = SETTINGS[name].group
        assert tops[group] < top < tops[order[order.index(group) + 1]]


def test_each_row_has_visible_and_accessible_text(page: Page) -> None:
    for name, row in page.preferences.rows.items():
        setting = SETTINGS[name]
        assert row.title.text() == setting.label
        assert row.help.text().startswith(setting.help)
        named = [row.field, *row.field.findChildren(QWidget)]
        assert any(setting.label in each.accessibleName() for each in named)


def test_value_with_a_name_is_shown_and_typed_as_a_word(page: Page, qtbot: QtBot) -> None:
    field = page.row("context").field
    assert isinstance(field, NumberField)
    assert (field.line.text(), field.unit.isVisibleTo(field)) == ("Auto", False)
    page.type(qtbot, "context", "4096")
    assert (field.line.text(), field.unit.isVisibleTo(field)) == ("4,096", True)
    page.type(qtbot, "context", "auto")
    assert (field.line.text(), field.unit.isVisibleTo(field)) == ("Auto", False)
    page.type(qtbot, "context", "0")
    assert field.line.text() == "Auto"
    assert page.emitted == [("context", 4096), ("context", 0)]


def test_setting_used_at_load_says_so(page: Page) -> None:
    late = [
        n
        for n, row in page.preferences.rows.items()
        if "Applies when a model is loaded" in row.help.text()
    ]
    assert late == [name for name in SHOWN if SETTINGS[name].at_load] != []


def test_choice_is_emitted_at_once(page: Page, qtbot: QtBot) -> None:
    field = page.row("theme").field
    assert isinstance(field, Segments)
    assert [b.text() for b in field.buttons.values()] == list(SETTINGS["theme"].words)
    qtbot.mouseClick(field.buttons["dark"], Qt.MouseButton.LeftButton)
    assert page.emitted == [("theme", "dark")]
    assert field.buttons["dark"].isChecked()


def test_arrow_keys_go_from_choice_to_choice(page: Page, qtbot: QtBot) -> None:
    field = page.row("cache").field
    assert isinstance(field, Segments)
    page.preferences.activateWindow()
    field.buttons["q8_0"].setFocus()
    qtbot.keyClick(field.buttons["q8_0"], Qt.Key.Key_Right)
    assert page.emitted == [("cache", "f16")]


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("temperature", "0.35", 0.35),
        ("temperature", " 1 ", 1.0),
        ("top_k", "12", 12),
        ("context", "16,384", 16_384),
        ("context", "4e3", 4000),
        ("snapshot_budget_gb", "0", 0.0),
        ("parallel_downloads", "4", 4),
        ("hub_endpoint", " https://mirror.example ", "https://mirror.example"),
        ("proxy", "proxy.example:3128", "proxy.example:3128"),
    ],
)
def test_typed_value_is_committed_when_finished(
    page: Page, qtbot: QtBot, name: str, typed: str, value: object
) -> None:
    page.type(qtbot, name, typed, leave=False)
    assert page.emitted == []
    qtbot.keyClick(page.line(name), Qt.Key.Key_Return)
    assert page.emitted == [(name, value)]
    assert type(page.emitted[0][1]) is type(getattr(Settings(), name))
    assert page.row(name).problem.isHidden()


@pytest.mark.parametrize(
    ("name", "typed", "sentence"),
    [
        ("temperature", "hot", "Enter a number from 0 to 2."),
        ("temperature", "2.1", "Enter a number from 0 to 2."),
        ("temperature", "nan", "Enter a number from 0 to 2."),
        ("temperature", "inf", "Enter a number from 0 to 2."),
        ("temperature", "", "Enter a number from 0 to 2."),
        ("top_k", "2.5", "Enter a whole number from 0 to 1,000."),
        ("parallel_downloads", "0", "Enter a whole number from 1 to 4."),
        ("context", "99999999999999999999999999", "Enter a whole number from 0 to 10,000,000."),
        ("hub_endpoint", "", "This is not a web address. Write it as https://server."),
        ("proxy", "socks5://here:1", "Write it as http://host:port."),
    ],
)
def test_invalid_input_is_rejected_with_an_error_in_its_row(
    page: Page, qtbot: QtBot, name: str, typed: str, sentence: str
) -> None:
    page.type(qtbot, name, typed)
    assert page.emitted == []
    problem = page.row(name).problem
    assert problem.isVisible()
    assert problem.text().endswith(sentence)
    assert page.line(name).text() == typed, "the typed text is kept for correction"


def test_error_disappears_when_the_input_is_corrected(page: Page, qtbot: QtBot) -> None:
    page.type(qtbot, "temperature", "7")
    page.type(qtbot, "temperature", "0.7", leave=False)
    assert page.row("temperature").problem.isHidden()


def test_escape_reverts_typing_first_then_closes_the_page(page: Page, qtbot: QtBot) -> None:
    left: list[bool] = []
    page.preferences.closed.connect(lambda: left.append(True))
    page.type(qtbot, "temperature", "7", leave=False)
    qtbot.keyClick(page.line("temperature"), Qt.Key.Key_Escape)
    assert page.line("temperature").text() == "0.7"
    assert left == []
    qtbot.keyClick(page.line("temperature"), Qt.Key.Key_Escape)
    assert left == [True]


def test_arrow_keys_step_within_the_range(page: Page, qtbot: QtBot) -> None:
    line = page.line("parallel_downloads")
    for _ in range(4):
        qtbot.keyClick(line, Qt.Key.Key_Up)
    assert page.emitted == [("parallel_downloads", 3), ("parallel_downloads", 4)]
    qtbot.keyClick(page.line("temperature"), Qt.Key.Key_Down)
    assert page.emitted[-1] == ("temperature", 0.65)


def test_unchanged_value_is_not_emitted(page: Page, qtbot: QtBot) -> None:
    page.type(qtbot, "temperature", "0.70")
    page.line("top_k").setFocus()
    page.line("top_p").setFocus()
    assert page.emitted == []
    assert page.line("temperature").text() == "0.7"


def test_reset_button_shows_for_changed_values(page: Page, qtbot: QtBot) -> None:
    row = page.row("temperature")
    assert row.reset.isHidden()
    height = row.sizeHint().height()
    page.type(qtbot, "temperature", "1.5")
    assert row.reset.isVisible()
    assert row.sizeHint().height() == height, "nothing moves when it appears"
    qtbot.mouseClick(row.reset, Qt.MouseButton.LeftButton)
    assert page.settings == Settings()
    assert row.reset.isHidden()
    assert page.line("temperature").text() == "0.7"


def test_every_setting_can_be_reset_to_its_default(qtbot: QtBot) -> None:
    changed = Settings(
        theme="dark", language="de", zoom=125, scale=150, notify="off", model_titles="on", system_prompt="Short.", temperature=0.0, top_k=1, top_p=0.5, min_p=0.5,
        repeat_penalty=1.0, max_tokens=5, thinking="off", faster_answers="off", context=512, cache="f16", threads=2, memory_gb=3.0, runs_on="cpu",
        tool_rounds=1, tool_seconds=5, search_provider="searxng", search_address="https://c.example",
        parallel_downloads=1, hub_endpoint="https://a.example", proxy="b:1", snapshot_budget_gb=0.0,
    )  # fmt: skip
    page = Page(changed)
    qtbot.addWidget(page.preferences)
    for row in page.preferences.rows.values():
        assert not row.reset.isHidden(), row.name
        row.reset.click()
    assert asdict(page.settings) == asdict(Settings())


def test_instructions_are_saved_while_typing(page: Page, qtbot: QtBot) -> None:
    editor = page.editor("system_prompt")
    editor.setFocus()
    qtbot.keyClicks(editor, "Answer in")
    until(lambda: page.emitted == [("system_prompt", "Answer in")])
    qtbot.keyClicks(editor, " verse")
    assert editor.toPlainText() == "Answer in verse", "the cursor stayed where it was"
    page.line("temperature").setFocus()
    assert page.emitted[-1] == ("system_prompt", "Answer in verse")


def test_leaving_the_page_saves_typed_text(page: Page, qtbot: QtBot) -> None:
    editor = page.editor("system_prompt")
    qtbot.keyClicks(editor, "x")
    page.preferences.hide()
    assert page.emitted == [("system_prompt", "x")]


def test_very_long_line_of_instructions_is_returned_unchanged(page: Page) -> None:
    text = "word " * 40_000
    field = page.row("system_prompt").field
    assert isinstance(field, TextField)
    QApplication.clipboard().setText(text)
    field.editor.paste()
    field.finish()
    assert page.emitted == [("system_prompt", text)]


def test_settings_changed_elsewhere_are_shown(page: Page) -> None:
    page.preferences.show_settings(replace(Settings(), theme="light", top_k=3))
    field = page.row("theme").field
    assert isinstance(field, Segments)
    assert field.buttons["light"].isChecked()
    assert page.line("top_k").text() == "3"
    assert page.emitted == []


def test_typing_survives_a_change_of_another_setting(page: Page, qtbot: QtBot) -> None:
    page.type(qtbot, "temperature", "1.", leave=False)
    page.preferences.show_settings(replace(Settings(), top_k=3))
    assert page.line("temperature").text() == "1."


def test_invalid_input_is_discarded_when_the_page_is_shown_again(page: Page, qtbot: QtBot) -> None:
    page.type(qtbot, "proxy", "socks5://x:1")
    page.preferences.hide()
    page.preferences.show()
    assert page.line("proxy").text() == ""
    assert page.row("proxy").problem.isHidden()


def test_reload_is_offered_after_a_change_of_a_load_setting(page: Page, qtbot: QtBot) -> None:
    requests: list[bool] = []
    page.preferences.reload_requested.connect(lambda: requests.append(True))
    page.type(qtbot, "threads", "2")
    assert page.preferences.reload_line.isHidden(), "no model is loaded"
    page.preferences.show_model(True)
    page.type(qtbot, "temperature", "1")
    assert page.preferences.reload_line.isHidden(), "temperature needs no reload"
    page.type(qtbot, "threads", "3")
    assert page.preferences.reload_line.isVisible()
    page.preferences.reload_line.button.click()
    assert requests == [True]
    page.preferences.show_model(True)
    assert page.preferences.reload_line.isHidden()


def test_snapshot_size_is_shown_and_snapshots_can_be_deleted(page: Page) -> None:
    requests: list[bool] = []
    page.preferences.delete_requested.connect(lambda: requests.append(True))
    saved, button = page.preferences.storage.saved, page.preferences.storage.saved.button
    assert not button.isEnabled()
    page.session_state.set_saved(SavedSnapshots(1_236_000_000))
    assert button.text() == "Delete this data"
    assert "1.2 GB" in saved.words.text()
    button.click()
    assert requests == [True]
    page.session_state.set_saved(SavedSnapshots(1_236_000_000, deleting=True))
    assert not button.isEnabled()
    page.session_state.set_saved(SavedSnapshots(0, error="It failed.", remedy="Try again."))
    assert saved.words.text() == "Nothing is stored now."
    assert saved.problem.text() == "It failed. Try again."


def test_storage_paths_can_be_shown_in_the_file_manager(page: Page, private_home: Path) -> None:
    requests: list[Path] = []
    page.preferences.folder_requested.connect(requests.append)
    for place in page.preferences.storage.places:
        place.show_button.click()
        assert place.place.toolTip() == str(place.path)
    assert len(set(requests)) == len(page.preferences.storage.places) >= 4
    assert all(path.is_relative_to(private_home) for path in requests)


def test_every_contacted_server_is_named(page: Page) -> None:
    assert "huggingface.co" in page.preferences.about.contacts.text()
    named = contacts(Settings(hub_endpoint="https://mirror.example/a", proxy="http://gate:3128"))
    assert [host for host, _ in named] == ["mirror.example", "the file servers it names", "gate"]
    (only,) = contacts(Settings(hub_endpoint="http://127.0.0.1:9"))
    assert only[0] == "127.0.0.1"
    for provider, address, host in (
        ("searxng", "https://search.example/x", "search.example"),
        ("searxng", "", ""),
        ("brave", "https://search.example/x", "api.search.brave.com"),
        ("tavily", "", "api.tavily.com"),
    ):
        last, _ = contacts(Settings(search_provider=provider, search_address=address))[-1]
        assert last == (host or "the file servers it names")
    page.preferences.show_settings(Settings(hub_endpoint="https://mirror.example"))
    assert "huggingface.co" not in page.preferences.about.contacts.text()


def test_the_licences_can_be_read(page: Page, qtbot: QtBot) -> None:
    about, view = page.preferences.about, page.preferences.licences
    about.licences.click()
    assert view.isVisible()
    assert "SIL OPEN FONT LICENSE" in view.text.toPlainText().upper()
    names = [view.names.item(row).text() for row in range(view.names.count())]
    assert any("Inter" in name for name in names)
    view.names.setCurrentRow(len(names) - 1)
    last = view.text.toPlainText()
    assert last.strip()
    qtbot.keyClick(view.names, Qt.Key.Key_Escape)
    assert not view.isVisible()
    assert about.licences.hasFocus()


def test_licences_are_listed_by_component(tmp_path: Path) -> None:
    names = (
        "Inter-OFL.txt",
        "index.txt",
        "torch/licenses/LICENSE",
        "torch/NOTICE",
        "jinja2/LICENSE.txt",
    )
    for name in (*names, ".hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    found = licences(tmp_path)
    assert [each.name for each in found] == [
        "All components", "Inter-OFL", "jinja2", "torch: licenses/LICENSE", "torch: NOTICE",
    ]  # fmt: skip
    assert [each.path.read_text(encoding="utf-8") for each in found] == [
        names[n] for n in (1, 0, 4, 2, 3)
    ]
    assert licences(tmp_path / "missing") == []


def test_unreadable_licence_shows_the_error(qtbot: QtBot, tmp_path: Path) -> None:
    view = LicenceView([Licence("gone", tmp_path / "gone")])
    qtbot.addWidget(view)
    view.open()
    assert "cannot be read" in view.text.toPlainText()


@pytest.mark.sweep
@pytest.mark.parametrize("width", [420, 560, 816, 1600])
@pytest.mark.parametrize("name", PALETTES)
def test_no_text_is_clipped_at_any_width(page: Page, theme: Theme, width: int, name: str) -> None:
    theme.choose(name)
    page.preferences.resize(width, 700)
    flush()
    visible = page.preferences.view.viewport().width()
    assert page.preferences.view.widget().width() == visible
    for row in page.shown.values():
        for part in (row.title, row.help, row.field):
            right = part.mapTo(page.preferences, part.rect().topRight()).x()
            assert 0 <= right <= visible - 20
            assert part.width() >= part.minimumSizeHint().width()
        field = row.field
        if isinstance(field, Segments):
            for button in field.buttons.values():
                assert button.width() >= button.sizeHint().width()
        if isinstance(field, NumberField):
            assert field.line.height() >= 28


def test_tab_visits_every_field_and_scrolls_to_it(page: Page, qtbot: QtBot) -> None:
    preferences = page.preferences
    preferences.activateWindow()
    preferences.setFocus()
    reached: set[QWidget] = set()
    for _ in range(60):
        qtbot.keyClick(QApplication.focusWidget() or preferences, Qt.Key.Key_Tab)
        widget = QApplication.focusWidget()
        if widget is None or widget in reached:
            break
        reached.add(widget)
        if preferences.view.widget().isAncestorOf(widget):
            top = widget.mapTo(preferences.view.viewport(), widget.rect().topLeft()).y()
            assert 0 <= top < preferences.view.viewport().height()
    for row in page.shown.values():
        assert any(row.isAncestorOf(widget) for widget in reached), row.name
    for place in preferences.storage.places:
        assert place.show_button in reached


def test_every_button_has_a_name(page: Page) -> None:
    for button in page.preferences.findChildren(QAbstractButton):
        assert button.accessibleName() or button.text(), button
        if isinstance(button, TextButton) and not button.isHidden():
            assert button.sizeHint().height() >= 24


def test_typing_on_the_page_does_not_reach_the_composer(page: Page) -> None:
    key = QKeyEvent(QKeyEvent.Type.KeyPress, Qt.Key.Key_A, Qt.KeyboardModifier.NoModifier, "a")
    QApplication.sendEvent(page.preferences, key)
    assert key.isAccepted()


def test_devices_that_there_are_can_be_chosen(qtbot: QtBot) -> None:
    page = Page(Settings())
    qtbot.addWidget(page.preferences)
    row = page.preferences.rows["runs_on"]
    buttons = row.field.buttons
    refused = DeviceRefusal(DeviceFault.TOO_OLD, "It is of 2016.")
    for devices, usable, words in (
        ((), False, "no GPU that can be used"),
        ((DeviceInfo("cuda", "NVIDIA H100"),), True, "Automatic takes the GPU"),
        ((DeviceInfo("cuda", "GTX 1060", refusal=refused),), False, "is too old"),
    ):
        page.preferences.show_devices(devices)
        assert [button.isEnabled() for button in buttons.values()] == [True, True, usable, usable]
        assert [not button.isHidden() for button in buttons.values()] == [
            True,
            True,
            usable,
            usable,
        ]
        assert words in row.help.text()
        assert row.help.text().endswith("Applies when a model is loaded.")


@pytest.mark.parametrize(
    ("used", "shown", "words"),
    [
        (UsedValue(0.7, Origin.USUAL, 0.7), "0.7", "The usual value."),
        (UsedValue(0.3, Origin.KNOWN, 0.3, 0.3), "0.3", "Recommended for Bonsai."),
        (UsedValue(0.3, Origin.FILE, 0.3, 0.3), "0.3", "Recommended by the file of Bonsai."),
        (UsedValue(0.7, Origin.YOURS, 0.7), "0.7", "Your choice."),
        (UsedValue(0.7, Origin.YOURS, 0.7, 0.7), "0.7", "Your choice."),
        (
            UsedValue(0.7, Origin.YOURS, 0.7, 0.3),
            "0.7",
            "Your choice; 0.3 is recommended for Bonsai.",
        ),
        (UsedValue(0.2, Origin.MODEL, 0.7, 0.3), "0.7", "Bonsai uses 0.2, its own setting."),
    ],
)
def test_a_sampling_value_says_where_it_comes_from(
    page: Page, used: UsedValue, shown: str, words: str
) -> None:
    settings = with_own(Settings(), "temperature") if used.origin is Origin.YOURS else Settings()
    page.preferences.show_settings(settings, {"temperature": used}, "Bonsai")
    row = page.row("temperature")
    assert (page.line("temperature").text(), row.source.text()) == (shown, words)
    assert row.reset.isHidden() == (used.origin is not Origin.YOURS)
    assert page.row("top_k").source.isHidden()
    page.preferences.show_settings(Settings())
    assert row.source.isHidden()
