"""What the parts of a preset are called, and what they are in one."""

from __future__ import annotations

from app.domain.chat_settings import AnswerFormat, ChatSettings
from app.domain.model_ref import Local, Remote
from app.settings.samplers import SAMPLERS, Thinking
from app.settings.table import Setting
from app.system.translation import listed, number, tr, trn
from app.ui.chat.composer.format_words import full_name
from engine import ContextPolicy


def part_words(part: str, settings: ChatSettings) -> str:
    """What a preset has for a part, in one line."""
    match part:
        case "model":
            return _model(settings)
        case "sampling":
            values = settings.sampling.items()
            return listed(_sampler(SAMPLERS[name], value) for name, value in values) or _usual()
        case "stop":
            return listed(settings.stop) or tr("None")
        case "format" if settings.format is not AnswerFormat.FREE:
            return full_name(settings.format)
        case "thinking":
            return _thinking(settings)
        case "policy" if settings.policy is ContextPolicy.STOP:
            return tr("Stop")
        case "policy":
            return tr("Leave out the oldest messages")
        case "adapters" if settings.adapters:
            count = len(settings.adapters)
            return trn("{count} adapter", "{count} adapters", count)
        case "collections" if settings.collections:
            count = len(settings.collections)
            return trn("{count} collection", "{count} collections", count)
        case "tools" if settings.tools:
            count = len(settings.tools)
            return trn("{count} tool", "{count} tools", count)
        case "adapters" | "collections" | "tools":
            return tr("None")
        case _:
            return _usual()


def _usual() -> str:
    return tr("As usual")


def _model(settings: ChatSettings) -> str:
    match settings.model:
        case Local(path):
            return path.stem
        case Remote(_, id):
            return id
        case None:
            return tr("The model in use")


def _sampler(setting: Setting, value: float) -> str:
    return tr("{setting} {value}", setting=tr(setting.label), value=number(value))


def _thinking(settings: ChatSettings) -> str:
    match settings.thinking:
        case Thinking.USUAL:
            return _usual()
        case Thinking.ON:
            return tr("On")
        case Thinking.OFF:
            return tr("Off")
        case Thinking.BUDGET:
            count = settings.thinking_budget
            return trn("At most {count} token", "At most {count} tokens", count)
