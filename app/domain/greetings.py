"""Greetings and polite openings of a first message, which a title leaves out, by language.

"Hi, could you please tell me how …" is titled "How …". A greeting counts where punctuation, a line
break or a request follows it: "Hello world in C" has none. Chinese, Japanese and Korean openings
are whole phrases, since their first character may begin another word.
"""

from __future__ import annotations

import re
from functools import cache

_GREETINGS = (  # each ends at a word's end
    r"h(?:i|ello|ey|iya|owdy)|sorry|thanks|greetings|good (?:morning|afternoon|evening|day)|dear (?:\w+)",
    r"hallo|entschuldigung|moin|servus|grüß (?:gott|dich)|guten (?:tag|morgen|abend)",
    r"bonjour|bonsoir|salut|coucou",
    r"hola|disculpa|buenas|buenos días|buenas (?:tardes|noches)",
    r"olá|oi|bom dia|boa (?:tarde|noite)",
    r"ciao|scusa|salve|buon ?giorno|buona ?sera",
    r"привет(?:ик)?|извини(?:те)?|здравствуй(?:те)?|добр(?:ый|ое|ого) (?:день|вечер|утро|времени суток)",
    r"مرحبا[ًا]?|أهلا[ًا]?|السلام عليكم(?: ورحمة الله(?: وبركاته)?)?|صباح الخير|مساء الخير",
    r"你好|您好|大家好|嗨|哈[喽囉]|早上好|下午好|晚上好",
    r"こんにち[はわ]|こんばん[はわ]|おはよう(?:ございます)?|はじめまして|お疲れ様です",
    r"안녕(?:하세요|하십니까)?|반갑습니다",
)
_ADDRESSED = (  # whom a greeting names
    r"there|all|everyone|everybody|again|friend|zusammen|leute|du|à tous|tout le monde|a todos"
    r"|tudo bem|pessoal|a tutti|всем|بكم|ai|assistant"
)
_REQUESTS = (  # each ends at a word's end
    r"(?:could|can|would|will) you(?: please| kindly)?(?: (?:tell|explain to|remind|let) me(?: know)?"
    r"(?: please)?)?|please(?: (?:tell|explain to) me)?|tell me|do you know"
    r"|(?:i would|i['’]d) like(?: you)? to(?: know)?|i want(?: you)? to know"
    r"|i (?:have|['’]ve got) a (?:quick )?question(?: about)?|(?:excuse|pardon) me",
    r"(?:kannst|könntest|können|könnten|würdest|würden) (?:du|sie)(?: (?:mir|uns))?(?: bitte)?"
    r"(?: mal)?(?: (?:sagen|erklären|verraten|zeigen)(?=,))?|bitte(?: (?:sag|erkläre?) mir)?|sag mir"
    r"(?: bitte)?|ich (?:möchte|würde) (?:gern(?:e)? )?wissen|ich (?:habe|hätte) (?:da )?eine frage"
    r"|weißt du",
    r"(?:est-ce que (?:tu peux|vous pouvez)|peux-tu|pouvez-vous|pourrais-tu|pourriez-vous|tu peux"
    r"|vous pouvez)(?: s['’]il (?:te|vous) pla[iî]t)?(?: m['’]expliquer| (?:me|nous) dire| (?:me|nous)\b)?"
    r"|s['’]il (?:te|vous) pla[iî]t|(?:j['’]aimerais|je voudrais|je veux) savoir|dis-moi"
    r"|dites-moi|j['’]ai une question",
    r"(?:me )?(?:puedes?|podrías?)(?: por favor)?(?: (?:decir|explicar)(?:me)?)?|por favor|dime"
    r"|(?:quisiera|me gustaría|quiero|quería) saber|tengo una (?:pregunta|duda)|sabes",
    r"(?:você )?(?:pode(?:ria)?s?|podias)(?: por favor)?(?: me)?(?: (?:dizer|explicar)(?:-me)?)?"
    r"|(?:gostaria de|queria|quero) saber|me diga|diga-me|tenho uma (?:pergunta|dúvida)",
    r"(?:mi )?(?:puoi|potresti|può|potrebbe)(?: per (?:favore|piacere))?"
    r"(?: (?:dir|spiegar)(?:e|mi))?|per (?:favore|piacere)|(?:vorrei|voglio) sapere|dimmi"
    r"|ho una domanda|mi sai dire",
    r"(?:(?:не )?мог(?:ли|ла)? бы (?:вы|ты)|(?:ты )?можешь(?: ли ты)?|(?:вы )?можете(?: ли вы)?)"
    r"(?:,? пожалуйста,?)?(?: мне)?(?: (?:сказать|объяснить|подсказать)(?=,))?|(?:под)?скажи(?:те)?"
    r"(?: мне)?(?:,? пожалуйста)?|пожалуйста|(?:я )?хо(?:чу|тел(?:а)? бы) (?:у)?знать"
    r"|у меня (?:есть )?вопрос",
    r"(?:هل )?(?:يمكنك|تستطيع|بإمكانك)(?: من فضلك| لو سمحت)?(?: أن(?: (?:تخبرني|تشرح لي|تقول لي))?)?"
    r"|من فضلك|لو سمحت|رجاءً|(?:أريد|أود) أن أعرف|أخبرني|قل لي|(?:عندي|لدي) سؤال",
)
_JOINED = (  # without a space after them
    r"[请請]问(?:一下)?|[请請](?:你|您)?(?:[帮幫]我|告[诉訴]我|[给給]我)|麻[烦煩](?:你|您)"
    r"|(?:你|您)?(?:能不能|能否|可不可以|可以|可否|能)(?:请)?(?:[帮幫]我|告[诉訴]我)"
    r"|我想(?:问|知道|请问|了解)(?:一下)?|(?:想)?请教(?:一下)?",
    r"すみません(?:が)?|申し訳ありませんが|質問(?:です|があります)(?:が)?|お願いがあります",
    r"혹시 |실례합니다(?:만)?|질문(?:이 있습니다|있어요|입니다)|죄송(?:합니다|하지만)",
)
_QUESTIONS = (  # words that a greeting without punctuation may stand before
    r"how|what|why|where|when|who|which|is|are|do|does|i|i['’](?:m|d|ve)|wie|was|warum|wo|wann|wer"
    r"|ich|comment|pourquoi|quel(?:le)?s?|qui|où|je|cómo|qué|por qué|cuál|como|o que|por que|qual"
    r"|come|che|perché|как|что|почему|где|когда|кто|كيف|ما|لماذا|أين|متى|هل"
)
_MARKS = r"\s*[,.!:;?，。！：；、،…–—~～¡¿]"
_ENDS = re.compile(r"[!?。！？؟…]+(?=\s|$|[^\s\x00-\u2fff])|(?<=[。！？])|\.+(?=\s|$)|\n")
_SHORT = re.compile(  # words whose full stop ends no sentence
    r"(?:^|[\s(])(?:\w|dr|mr|mrs|ms|mme|st|vs|etc|no|nr|ca|bzw|usw|prof|fig|inc|jr|sr|approx|pág"
    r"|sig|(?:\w\.)+\w)$",
    re.IGNORECASE,
)
_ASKS = re.compile(rf"[¿¡]?(?:{_QUESTIONS})\b|[吗嗎呢]|.*(?:什么|为什么|怎么|吗)", re.IGNORECASE)
_INVERTED = ("¿", "¡")
_TRAILING, _QUESTION_MARKS = ".,;:。，、：", "?？؟ \u00a0\u202f"
_LEAST = 8  # characters of a sentence that can be a title


@cache
def _opening() -> re.Pattern[str]:
    requests, greetings = "|".join(_REQUESTS), "|".join(_GREETINGS)
    joined = "|".join(_JOINED)
    follows = rf"\s*(?=(?:{joined}))|\s+(?=(?:{requests}|{_QUESTIONS})\b)"
    return re.compile(
        rf"(?:(?P<greeting>{greetings})(?:\s+(?:{_ADDRESSED}))?(?:(?:{_MARKS})+\s*|\s*\n\s*|{follows})"
        rf"|(?:{requests})\b(?:(?:{_MARKS})+\s*|\s+)"
        rf"|(?:{joined})(?:{_MARKS})*\s*)",
        re.IGNORECASE,
    )


def topic(text: str) -> str:
    """The first sentence of a text after its greeting and polite opening, as a title; "" if none."""
    rest, was_request = _without_opening(text)
    sentence = _first_sentence(rest).rstrip(_TRAILING)
    if was_request and not _ASKS.match(sentence):  # "Can you draw a cat?" is "Draw a cat"
        sentence = sentence.rstrip(_QUESTION_MARKS)
    at = 1 if sentence[:1] in _INVERTED else 0
    is_plain = sentence[at : at + 1].islower() and not sentence[at + 1 : at + 2].isupper()
    if rest == text or not is_plain:  # "iPhone" stays
        return sentence
    return sentence[:at] + sentence[at].upper() + sentence[at + 1 :]


def _without_opening(text: str) -> tuple[str, bool]:
    """The text without its opening, if something is left, and whether that was a request."""
    rest, question, was_request = text.lstrip(), "", False
    while found := _opening().match(rest, 1 if rest[:1] in _INVERTED else 0):
        question = "¿" if "¿" in rest[: found.end()] else question
        was_request = was_request or found["greeting"] is None
        rest = rest[found.end() :]
    if not any(letter.isalnum() for letter in rest):
        return text, False
    is_asked = bool(question) and rest[0] not in _INVERTED and "?" in rest
    return (question + rest if is_asked else rest), was_request


def _first_sentence(text: str) -> str:
    """The first sentence, and the next ones while that is too short to be a title."""
    for found in _ENDS.finditer(text):
        if found[0] == "." and _SHORT.search(text[: found.start()]):
            continue
        sentence = text[: found.end()].strip()
        width = sum(2 if letter > "\u2e80" else 1 for letter in sentence)
        if width >= _LEAST and any(letter.isalnum() for letter in sentence):
            return sentence
    return text.strip()
