"""Renders screenshots of every screen and card to build/shots/<name>-<theme>.png, for inspection.

Runs offscreen with the fake engine and a store of made-up conversations. `--language ar` renders
them in a language of the window, `--scale 2` at 200 %, `--theme` in one theme. The scaled
screenshots of a run without options come from a second process, because Qt reads the scale factor
once per process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from PySide6.QtWidgets import QApplication

import scenes_adapters
import scenes_answers
import scenes_chat
import scenes_collections
import scenes_comparison
import scenes_composer
import scenes_connections
import scenes_elsewhere
import scenes_files
import scenes_folders
import scenes_instructions
import scenes_library
import scenes_models
import scenes_panel
import scenes_parts
import scenes_passages
import scenes_performance
import scenes_pictures
import scenes_presets
import scenes_search
import scenes_settings
import scenes_tables
import scenes_tool_calls
import scenes_tool_servers
import scenes_tools
import scenes_transfer
import scenes_trash
import scenes_updates
from app.ui.language import set_language
from scenes_chat import Scene, fill
from stage import Stage

OUT = Path(__file__).parents[2] / "build" / "shots"
SCENES: dict[str, Scene] = {
    **scenes_chat.SCENES,
    **scenes_answers.SCENES,
    **scenes_collections.SCENES,
    **scenes_comparison.SCENES,
    **scenes_composer.SCENES,
    **scenes_files.SCENES,
    **scenes_folders.SCENES,
    **scenes_instructions.SCENES,
    **scenes_library.SCENES,
    **scenes_models.SCENES,
    **scenes_panel.SCENES,
    **scenes_parts.SCENES,
    **scenes_passages.SCENES,
    **scenes_tables.SCENES,
    **scenes_tool_calls.SCENES,
    **scenes_tool_servers.SCENES,
    **scenes_tools.SCENES,
    **scenes_adapters.SCENES,
    **scenes_performance.SCENES,
    **scenes_pictures.SCENES,
    **scenes_presets.SCENES,
    **scenes_connections.SCENES,
    **scenes_elsewhere.SCENES,
    **scenes_search.SCENES,
    **scenes_settings.SCENES,
    **scenes_updates.SCENES,
    **scenes_transfer.SCENES,
    **scenes_trash.SCENES,
}
HIGH_CONTRAST = (
    "empty",
    "long_answer",
    "several_selected",
    "two_answering",
    "stop_in_sidebar",
    "picker",
    "loading",
    "adapters_stacked",
    "adapters_failed",
    "compared",
    "compared_streaming",
    "compared_narrow",
    "comparison_card",
    "trash",
    "import_preview",
    "collections",
    "collection_chips",
    "files",
    "files_too_long",
    "file_card",
    "folders",
    "folders_dragged",
    "performance",
    "performance_one",
    "find",
    "panel",
    "panel_set",
    "panel_sampling",
    "panel_format",
    "panel_end",
    "format_chip",
    "parts",
    "parts_unfolded",
    "parts_failed",
    "pictures",
    "picture_viewer",
    "passages_struck",
    "connections_busy",
    "connections_engines",
    "remote_answer",
    "updates_newer",
    "tools_open",
    "tools_files",
    "tools_asking_long",
    "tools_panel_files",
    "activity_open",
    "tool_servers",
    "tool_servers_start",
)
SCALED = ("empty", "long_answer", "picker", "panel_set", "connections_busy", "remote_answer")


def shoot(name: str, theme: str, suffix: str = "") -> None:
    """Render one scene in one theme and save the screenshot."""
    with tempfile.TemporaryDirectory(prefix="tokonoma-shot-") as home:
        os.environ["TOKONOMA_HOME"] = home
        folder = Path(home)
        fill(folder)
        stage = Stage(folder, theme=theme, outside=scenes_connections.outside(folder))
        try:
            SCENES[name](stage)
            stage.wait_for_animations()
            shown = next(iter(stage.window.attaching.regions.overlays), stage.window)
            shown.grab().save(str(OUT / f"{name}-{theme.replace(' ', '-')}{suffix}.png"))
        finally:
            stage.close()


def main() -> int:
    """Render all scenes, or those named on the command line."""
    parser = argparse.ArgumentParser(description="Render every screen to build/shots.")
    parser.add_argument("scenes", nargs="*", help="only these")
    parser.add_argument("--scale", help="only the pictures at this scale: 1.5, 2")
    parser.add_argument("--language", help="of the window, such as de", default="")
    parser.add_argument("--theme", choices=("light", "dark", "high contrast"), help="only this one")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if options.scale:
        os.environ["QT_SCALE_FACTOR"] = options.scale
    application = QApplication(sys.argv[:1])
    application.setCursorFlashTime(0)
    if options.language:
        set_language(application, options.language)
    suffix = f"@{options.scale}x" if options.scale else ""
    suffix += f"-{options.language}" if options.language else ""
    for name in options.scenes or SCENES:
        themes = ("light", "dark", *(["high contrast"] if name in HIGH_CONTRAST else []))
        for theme in (options.theme,) if options.theme else themes:
            shoot(name, theme, suffix)
    if len(sys.argv) == 1:
        command = (sys.executable, __file__, *SCALED, "--scale", "1.5", "--theme", "light")
        subprocess.run(command, check=True)
    print(f"The pictures are in {OUT}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
