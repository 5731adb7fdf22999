"""Message length: refuses a message that the model cannot read at once."""

from __future__ import annotations

from app.chat.token_count import TokenCount
from app.domain.parts import Parts, prompt_text
from app.state.chat import Notice, State
from app.system.translation import number, tr

NOTICE = "long"  # kind of the notice that a message is too long for the model


def is_too_long(state: State, token_count: TokenCount, parts: Parts) -> bool:
    """Whether a message of the shown chat cannot fit in the model's context; a notice says so."""
    loaded, text = state.model.loaded, prompt_text(parts)
    state.set_notice(NOTICE, None)
    if not state.has_in_use(state.settings(state.current).model):
        return False  # the chat's own model counts other tokens
    if loaded is None or len(text.encode("utf-8", "replace")) < loaded.context:
        return False  # no text has more tokens than bytes
    tokens = token_count.of(text)
    if tokens is None and not state.generations:
        token_count.count(text)  # the composer may not have emitted it yet
        notice = Notice(
            tr("The length of this text is still being counted."), tr("Send it in a moment.")
        )
    elif tokens is not None and tokens >= loaded.context:
        sentence = tr(
            "This message has {tokens} tokens, and {name} can read {context} at once.",
            tokens=number(tokens), name=loaded.name, context=number(loaded.context),
        )  # fmt: skip
        notice = Notice(sentence, tr("Shorten it, or load the model with a longer context."))
    else:
        return False
    state.set_notice(NOTICE, notice)
    return True
