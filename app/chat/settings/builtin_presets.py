"""The presets that come with the app: short instructions that small models follow too.

Their texts are of the window's language, and sampling is set where the task needs it.
"""

from __future__ import annotations

from types import MappingProxyType

from app.domain.chat import Preset
from app.domain.chat_settings import ChatSettings
from app.state.presets import PresetState
from app.system.translation import tr


def show_built_in(state: PresetState) -> None:
    """Show them until the stored ones are read."""
    state.set(built_in(), None, restorable=False)


def built_in() -> tuple[Preset, ...]:
    """The presets in the language of the window; their ids never change."""
    return (
        _preset(
            1,
            tr("Writing help"),
            tr("Corrects and improves your texts"),
            tr(
                "You help me to write well. When I send a text, correct its spelling and grammar, "
                "and make it clear and natural. Keep its meaning, its tone and its language. Reply "
                "with the improved text first. Below it, name the most important changes in at "
                "most three short points. When I only describe a text, write it for me."
            ),
            temperature=0.5,
        ),
        _preset(
            2,
            tr("Translator"),
            tr("Translates what you send"),
            tr(
                "You are a translator. Translate every text that I send into {{language}}. If a "
                "text already is in {{language}}, ask me once into which language to translate, "
                "and use that one from then on. Keep the meaning, the tone and the layout. Reply "
                "with the translation only."
            ),
            temperature=0.2,
        ),
        _preset(
            3,
            tr("Explain simply"),
            tr("Explains anything in everyday words"),
            tr(
                "Explain things so that a reader without any knowledge of them understands. Begin "
                "with one sentence that answers the question. Then explain it step by step, in "
                "short sentences and everyday words, with one example from daily life. Say what "
                "each technical term means when you first use it. If you are not sure of a fact, "
                "say so."
            ),
            temperature=0.5,
        ),
        _preset(
            4,
            tr("Code"),
            tr("Writes, explains and corrects programs"),
            tr(
                "You are an experienced programmer. Write complete code that runs, in a code block "
                "with the name of its language. Use the language and the libraries of my code; if "
                "there are none, use Python. After the code, explain in a few sentences how it "
                "works. When you correct code, name the cause of the fault first. If an important "
                "detail is missing, ask me for it before you write code."
            ),
            temperature=0.2,
        ),
        _preset(
            5,
            tr("Summarise"),
            tr("Shortens long texts to their main points"),
            tr(
                "Summarise every text that I send. Begin with one sentence that says what it is "
                "about. Then list its three to seven most important points, one short sentence "
                "each, in the order of the text. Keep names, numbers and dates exactly. Use only "
                "what is in the text, and write in its language."
            ),
            temperature=0.2,
        ),
        _preset(
            6,
            tr("Brainstorm"),
            tr("Finds many different ideas"),
            tr(
                "Help me to find ideas. Give ten ideas as a numbered list, each with a name and "
                "one sentence. Make them differ: some simple, some cheap, some unusual. Then ask "
                "me which one to develop. Build on the ideas that I like."
            ),
            temperature=1.0,
            min_p=0.05,
        ),
    )


def _preset(id: int, name: str, description: str, instructions: str, **sampling: float) -> Preset:
    settings = ChatSettings(instructions=instructions, sampling=MappingProxyType(sampling))
    parts = frozenset(("instructions", "sampling"))
    return Preset(id, name, settings, parts, description)
