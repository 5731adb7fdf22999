"""Names of languages that a document can be translated into, in the language of the window."""

from __future__ import annotations

from app.system.translation import tr, used_language


def language_names() -> list[str]:
    """The names, that of the window's language first."""
    names = {
        "English": tr("English"),
        "Arabic": tr("Arabic"),
        "Chinese": tr("Chinese"),
        "Czech": tr("Czech"),
        "Danish": tr("Danish"),
        "Dutch": tr("Dutch"),
        "Finnish": tr("Finnish"),
        "French": tr("French"),
        "German": tr("German"),
        "Greek": tr("Greek"),
        "Hebrew": tr("Hebrew"),
        "Hindi": tr("Hindi"),
        "Hungarian": tr("Hungarian"),
        "Indonesian": tr("Indonesian"),
        "Italian": tr("Italian"),
        "Japanese": tr("Japanese"),
        "Korean": tr("Korean"),
        "Norwegian": tr("Norwegian"),
        "Persian": tr("Persian"),
        "Polish": tr("Polish"),
        "Portuguese": tr("Portuguese"),
        "Romanian": tr("Romanian"),
        "Russian": tr("Russian"),
        "Spanish": tr("Spanish"),
        "Swedish": tr("Swedish"),
        "Thai": tr("Thai"),
        "Turkish": tr("Turkish"),
        "Ukrainian": tr("Ukrainian"),
        "Vietnamese": tr("Vietnamese"),
    }
    first = names.pop(used_language())
    return [first, *sorted(names.values(), key=str.casefold)]
