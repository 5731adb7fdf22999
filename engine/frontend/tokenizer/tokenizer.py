"""Tokenizer: text to token ids and back, from the vocabulary in GGUF metadata.

Ids must match those used in training exactly, so all rules follow ggml: special tokens are split
out first, longest first; the remaining text is encoded by byte-level BPE, BPE of characters,
WordPiece and unigrams (all by the `tokenizers` library) or SentencePiece scores. Unicode classes are those of the
library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import index
from typing import Any, cast

from engine.errors import Fault, FaultKind, ModelFileError, UnsupportedModel
from engine.frontend.tokenizer.added import AddedTokens
from engine.frontend.tokenizer.json import SubwordModel
from engine.frontend.tokenizer.library import SubwordEncoder
from engine.frontend.tokenizer.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from engine.frontend.tokenizer.replacements import Replacements
from engine.frontend.tokenizer.sentencepiece import SPACE, SentencePieceEncoder
from engine.frontend.tokenizer.special import (
    EOS_OR_HTML_TAG,
    FIM_END_KEYS,
    FIM_TEXTS,
    SHOWN_TEXTS,
    SpecialTokens,
    TokenKind,
    end_ids,
)

Metadata = Mapping[str, object]
_AGAIN = "Download the file again, or choose another one."
_OTHER = (
    "Choose a model with a byte-level (gpt2), SentencePiece (llama), WordPiece (bert) or unigram (t5) "
    "vocabulary."
)
_WORDPIECE = "bert"
_UNIGRAM = "t5"  # SentencePiece's unigrams, also of XLM-RoBERTa
_CHARACTERS = "gemma4"  # BPE of characters, whose tokens are spelled as SentencePiece's
# With it `</s>` is an HTML tag even in prompts, as in ggml.
_TOOL_RESPONSE = "<|tool_response>"
# `tokenizer.ggml.model` of files that say that they have no vocabulary.
NO_VOCABULARY = ("no_vocab", "none")
SUPPRESSED = "tokenizer.ggml.suppress_tokens"
_KNOWN_PIECES = 4096  # tokens whose bytes are remembered
_CLS, _SEP, _UNKNOWN = 101, 102, 100  # of BERT's vocabulary: ggml's defaults
_END_OF_T5, _UNKNOWN_OF_T5 = 1, 2
_NO_TEXT = "\ufdd0"  # a code that is no character, for a piece that no text has
_HIDDEN = (TokenKind.CONTROL, TokenKind.UNKNOWN)  # in an answer
_BYTE_TEXT = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class _Pieces:
    """The bytes of each token of a vocabulary.

    Apart from the tokenizer, which remembers results: a cycle with a vocabulary in it would stay in
    memory after its model, until the next garbage collection.
    """

    def __init__(self, texts: Sequence[str], kinds: Sequence[int], *, byte_level: bool) -> None:
        self._texts, self._kinds = texts, kinds
        self._byte_of = {character: byte for byte, character in enumerate(_byte_alphabet())}
        self._byte_level = byte_level

    def of(self, token: int) -> bytes:
        """The bytes of a token; empty for an id without text."""
        if not 0 <= token < len(self._texts):
            return b""
        text, kind = self._texts[token], self._kinds[token]
        if kind == TokenKind.NORMAL:
            if self._byte_level:
                return _to_bytes(text, self._byte_of)
            return text.replace(SPACE, " ").encode("utf-8")
        if kind == TokenKind.BYTE:
            found = _BYTE_TEXT.fullmatch(text)
            return bytes([int(found[1], 16)]) if found else text.encode("utf-8")
        return b"" if kind not in (*_HIDDEN, TokenKind.USER_DEFINED) else text.encode("utf-8")

    def shown(self, token: int) -> bytes:
        """The same, and empty for a control token."""
        is_hidden = 0 <= token < len(self._kinds) and self._kinds[token] in _HIDDEN
        return b"" if is_hidden else self.of(token)


class Tokenizer:
    """The tokenizer of one model, immutable; made by `from_metadata`."""

    bos: int | None
    eos: int | None
    add_bos: bool  # `encode` puts `bos` first
    add_eos: bool
    end_tokens: frozenset[int]  # any of these ends a reply
    suppressed: frozenset[int]  # never generated: markers of pictures and sounds, unused tokens
    separator: int | None  # a further token between a query and a document
    sentencepiece: bool  # SentencePiece scores; otherwise another kind
    wordpiece: bool  # `bos` and `eos` are then [CLS] and [SEP]

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> Tokenizer:
        """The tokenizer for the `tokenizer.ggml.*` keys of a GGUF file.

        Raises ModelFileError for a missing or malformed key, UnsupportedModel for an unsupported
        vocabulary or pre-tokenizer.
        """
        return cls(metadata)

    def __init__(self, metadata: Metadata, subwords: SubwordModel | None = None) -> None:
        """Use `from_metadata`, or `engine.frontend.tokenizer.vocabulary` for a `tokenizer.json`."""
        rule = None if subwords else vocabulary_rule(metadata)
        self.sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
        self.wordpiece = metadata.get("tokenizer.ggml.model") == _WORDPIECE
        is_gemma = metadata.get("tokenizer.ggml.model") == _CHARACTERS
        is_characters = is_gemma or (rule is not None and rule.is_characters)
        is_unigram = metadata.get("tokenizer.ggml.model") == _UNIGRAM
        self._byte_level = not (self.sentencepiece or self.wordpiece or is_unigram or is_characters)
        self._texts = _token_texts(metadata)
        self._ids = {text: token for token, text in enumerate(self._texts)}
        self._kinds = _numbers(metadata, "token_type", len(self._texts), TokenKind.NORMAL)

        implied = self.sentencepiece and subwords is None  # ggml's defaults
        self.bos = self._named("bos", metadata, 1 if implied else None)
        default_eos = _END_OF_T5 if is_unigram else 2 if implied else None
        self.eos = self._named("eos", metadata, default_eos)
        default_bos = rule.add_bos if rule else implied
        self.add_bos = _flag(metadata, "add_bos_token", default_bos) and self.bos is not None
        if is_gemma:  # some files say otherwise, and answer with noise
            self.add_bos = self.bos is not None
        self.add_eos = _flag(metadata, "add_eos_token", is_unigram) and self.eos is not None
        has_separator = _flag(metadata, "add_sep_token", rule is not None and rule.add_sep)
        self.separator = self._named("seperator", metadata) if has_separator else None
        if self.wordpiece:
            self.bos = self._named("cls", metadata, self._named("bos", metadata, _CLS))
            self.eos = self._named("seperator", metadata, _SEP)  # as the key is spelled
            if self.bos is None or self.eos is None:
                raise ModelFileError("The vocabulary has no tokens [CLS] and [SEP].", _AGAIN)
            self.add_bos = self.add_eos = True
            self.separator = None  # as `eos` is between the two

        self.infill: dict[str, int] = {}  # tokens that fill a gap, by the key that may name them
        self.end_tokens = self._mark_control_tokens(metadata)
        self.suppressed = _ids_within(metadata, SUPPRESSED, len(self._texts))
        self._subwords = subwords or self._subword_model(metadata, rule)
        self._specials = self._special_tokens(metadata)
        pieces = _Pieces(self._texts, self._kinds, byte_level=self._byte_level)
        # The bytes of a token, control tokens included; empty for an id without text.
        self.piece: Callable[[int], bytes] = lru_cache(_KNOWN_PIECES)(pieces.of)
        # The same, and empty for a control token, which is not shown.
        self.shown_piece: Callable[[int], bytes] = lru_cache(_KNOWN_PIECES)(pieces.shown)

    # --- text to ids ----------------------------------------------------------------------------

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Token ids of `text`.

        add_special adds BOS and EOS as the file specifies. parse_special parses control texts such
        as `<|im_end|>` as tokens; otherwise they are plain text. A lone surrogate becomes U+FFFD.
        """
        ids = [cast(int, self.bos)] if add_special and self.add_bos else []
        encode = self._subwords.first
        for piece in self._specials.split(_well_formed(text), parse_control=parse_special):
            ids += [piece] if isinstance(piece, int) else encode(piece)
            encode = self._subwords.later
        if add_special and self.add_eos:
            ids.append(cast(int, self.eos))
        return ids

    def encode_within(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Token ids of text that continues other text: nothing is added.

        Control texts are plain text, unless `parse_special`.
        """
        ids: list[int] = []
        for piece in self._specials.split(_well_formed(text), parse_control=parse_special):
            ids += [piece] if isinstance(piece, int) else self._subwords.within(piece)
        return ids

    def encode_parts(self, parts: Sequence[str | Sequence[int]]) -> list[int]:
        """Token ids of one text of which some parts are given as ids; nothing is added.

        Control texts are tokens.
        """
        ids: list[int] = []
        encode = self._subwords.first
        for part in parts:
            if not isinstance(part, str):
                ids += part
                encode = self._subwords.later
                continue
            for piece in self._specials.split(_well_formed(part), parse_control=True):
                ids += [piece] if isinstance(piece, int) else encode(piece)
                encode = self._subwords.later
        return ids

    def encode_filled(self, template: str, values: Mapping[str, str]) -> list[int]:
        """Token ids of a template with its placeholders replaced by `values`; nothing is added.

        Control texts of the template are tokens, those in the values are plain text.
        """
        places = re.compile("|".join(map(re.escape, values)))
        ids: list[int] = []
        encode = self._subwords.first
        for piece in self._specials.split(_well_formed(template), parse_control=True):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                filled = _well_formed(places.sub(lambda found: values[found[0]], piece))
                for part in self._specials.split(filled, parse_control=False):
                    ids += [part] if isinstance(part, int) else encode(part)
                    encode = self._subwords.later
            encode = self._subwords.later
        return ids

    def token_id(self, text: str) -> int | None:
        """The token with exactly this text; None if there is none."""
        return self._ids.get(text)

    # --- ids to text ----------------------------------------------------------------------------

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Text of `ids`, without the space `encode` prepends; invalid UTF-8 becomes U+FFFD.

        Control tokens are left out unless `special`.
        """
        shown = ids if special else [token for token in ids if not self.is_control(token)]
        text = b"".join(map(self.piece, shown)).decode("utf-8", "replace")
        return text.removeprefix(" ") if self._subwords.strips_space else text

    def is_control(self, token: int) -> bool:
        """Whether the token is a control token, which is not shown."""
        return 0 <= token < len(self._kinds) and self._kinds[token] in _HIDDEN

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self._texts)

    # --- reading the file -----------------------------------------------------------------------

    def _named(self, name: str, metadata: Metadata, default: int | None = None) -> int | None:
        """A token id from the metadata; ids outside the vocabulary count as missing, as in ggml."""
        key = f"tokenizer.ggml.{name}_token_id"
        value = metadata.get(key)
        if value is None:
            token = default
        else:
            token = _integer(key, value)
            token = token if 0 <= token < len(self._texts) else default
        return token if token is None or token < len(self._texts) else None

    def _subword_model(self, metadata: Metadata, rule: PreTokenizer | None) -> SubwordModel:
        """The subword model from the GGUF metadata."""
        if rule is not None and self._byte_level:
            encode = _byte_level_encoder(metadata, self._ids, rule)
            return SubwordModel(encode, encode, encode, strips_space=False)
        if self.wordpiece:
            unknown = self._named("unknown", metadata, _UNKNOWN)
            encode = _wordpiece_encoder(metadata, self._texts, self._kinds, unknown)
            return SubwordModel(encode, encode, encode, strips_space=True)
        if metadata.get("tokenizer.ggml.model") == _UNIGRAM:
            unknown = self._named("unknown", metadata, _UNKNOWN_OF_T5)
            encode = _unigram_encoder(metadata, self._texts, self._kinds, unknown)
            add_space = _flag(metadata, "add_space_prefix", False)
            return SubwordModel(encode, encode, encode, strips_space=add_space)
        if not (self.sentencepiece or self._byte_level):
            unknown = self._named("unknown", metadata)
            name = None if unknown is None else self._texts[unknown]
            encode = _character_encoder(metadata, self._ids, name)
            return SubwordModel(encode, encode, encode, strips_space=False)
        scores = _numbers(metadata, "scores", len(self._texts), 0.0)
        merge = SentencePieceEncoder(self._ids, scores, self._named("unknown", metadata, 0)).encode
        add_space = _flag(metadata, "add_space_prefix", True)
        encode = (lambda text: merge(" " + text)) if add_space else merge
        return SubwordModel(encode, encode, merge, strips_space=add_space)

    def _mark_control_tokens(self, metadata: Metadata) -> frozenset[int]:
        """Correct the types of well-known control tokens; returns the tokens that end a reply."""
        ends = end_ids(self._ids)
        marked = set(ends)
        for name, texts in FIM_TEXTS.items():
            token = self._named(name, metadata)
            if token is None:
                token = next((self._ids[text] for text in texts if text in self._ids), None)
                marked |= set() if token is None else {token}
            if token is None:
                continue
            self.infill[name] = token
            if name in FIM_END_KEYS:
                ends.add(token)
        for token in marked:
            self._kinds[token] = TokenKind.CONTROL
        for text in SHOWN_TEXTS:
            if text in self._ids:
                self._kinds[self._ids[text]] = TokenKind.USER_DEFINED
        stop = self._ids.get(EOS_OR_HTML_TAG)
        if stop is not None and self._kinds[stop] == TokenKind.CONTROL:
            ends.add(stop)
        named = (self.eos, self._named("eot", metadata), self._named("eom", metadata))
        return frozenset(ends | {token for token in named if token is not None})

    def _special_tokens(self, metadata: Metadata) -> SpecialTokens | AddedTokens:
        user_defined: list[tuple[str, int]] = []
        control: list[tuple[str, int]] = []
        for token, kind in enumerate(self._kinds):
            text = self._texts[token]
            # ggml treats most `</s>` in a prompt as a control token.
            is_end = text == EOS_OR_HTML_TAG and _TOOL_RESPONSE not in self._ids
            if kind in (TokenKind.CONTROL, TokenKind.UNKNOWN) or is_end:
                control.append((text, token))
            elif kind == TokenKind.USER_DEFINED:
                user_defined.append((text, token))
        if self._subwords.added_options is not None:
            return AddedTokens(user_defined, control, self._subwords.added_options)
        return SpecialTokens(user_defined, control, self._rstrip_tokens(metadata))

    def _rstrip_tokens(self, metadata: Metadata) -> frozenset[int]:
        """Tokens whose match includes following whitespace: hard-coded for Phi-3, as in ggml."""
        name = str(metadata.get("general.name", "")).lower()
        if "phi-3" not in name and "phi3" not in name:
            return frozenset()
        keep = {"<unk>", "<s>", "<|endoftext|>"}
        special = (TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.USER_DEFINED)
        return frozenset(
            token
            for token, kind in enumerate(self._kinds)
            if self._texts[token] not in keep
            and (kind in special or self._texts[token] == EOS_OR_HTML_TAG)
        )


def vocabulary_rule(metadata: Metadata) -> PreTokenizer | None:
    """The pre-tokenizer of a byte-level vocabulary; None for the others.

    Raises UnsupportedModel for a missing or unsupported kind of vocabulary, or pre-tokenizer.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model not in ("gpt2", "llama", _WORDPIECE, _UNIGRAM, _CHARACTERS):
        raise unreadable(model, _AGAIN if model is None else _OTHER)
    return _pre_tokenizer(metadata) if model == "gpt2" else None


def unreadable(model: object, remedy: str) -> UnsupportedModel:
    """The error of a file whose vocabulary is missing (None) or of an unsupported kind."""
    found = "no tokenizer.ggml.model" if model is None else f"its kind is {_short(model)}"
    return UnsupportedModel(
        f"The file has no vocabulary that this program can read ({found}), so it cannot read texts.",
        remedy,
        Fault(FaultKind.OTHER_TYPE, "no vocabulary"),
    )


def _well_formed(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(rest)) for byte in range(256)]


def _to_bytes(text: str, byte_of: Mapping[str, int]) -> bytes:
    try:
        return bytes(map(byte_of.__getitem__, text))
    except KeyError:  # not in the byte alphabet: use the text itself
        return text.encode("utf-8")


def _merges(metadata: Metadata, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for merge in dict.fromkeys(_strings(metadata, "merges")):  # duplicates keep the first rank
        left, _, right = merge.partition(" ")
        if left in ids and right in ids and left + right in ids:
            pairs.append((left, right))
    return pairs


def _character_encoder(
    metadata: Metadata, ids: Mapping[str, int], unknown: str | None
) -> Callable[[str], list[int]]:
    pairs = _merges(metadata, ids)
    return SubwordEncoder.from_character_merges(
        ids, pairs, space=SPACE, unknown=unknown, remedy=_AGAIN
    ).encode


def _byte_level_encoder(
    metadata: Metadata, ids: Mapping[str, int], rule: PreTokenizer
) -> Callable[[str], list[int]]:
    pairs = _merges(metadata, ids)
    vocabulary = dict(ids)
    size = max(vocabulary.values()) + 1
    complete = all(character in ids for character in _byte_alphabet())
    placeholder = None
    if not complete:  # bytes without a token block merges and are then dropped
        placeholder = "\0"  # occurs in no text: the byte alphabet has no control characters
        vocabulary[placeholder] = size
    encode_all = SubwordEncoder.from_merges(
        vocabulary,
        pairs,
        rule.patterns,
        unknown=placeholder,
        whole_words=rule.whole_words,
        composes=rule.composes,
        remedy=_AGAIN,
    ).encode

    def encode(text: str) -> list[int]:
        return [token for token in encode_all(text) if token < size]

    return encode_all if complete else encode


def _wordpiece_encoder(
    metadata: Metadata, texts: Sequence[str], kinds: Sequence[int], unknown: int | None
) -> Callable[[str], list[int]]:
    """The encoder of pieces in ggml's spelling: SPACE before the first one of a word."""
    pieces: dict[str, int] = {}
    for token, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
        if kind != TokenKind.NORMAL:
            pieces.setdefault(text, token)
        elif text.startswith(SPACE):
            pieces.setdefault(text.removeprefix(SPACE), token)
        else:
            pieces.setdefault(f"##{text}", token)
    if unknown is None:
        raise ModelFileError("The vocabulary has no token for unknown words.", _AGAIN)
    names = {token: text for text, token in pieces.items()}
    lowercase = _flag(metadata, "normalizer.lowercase", True)
    return SubwordEncoder.from_pieces(
        pieces,
        unknown=names.get(unknown, ""),
        lowercase=lowercase,
        strip_accents=_flag(metadata, "normalizer.strip_accents", lowercase),
        remedy=_AGAIN,
    ).encode


def _unigram_encoder(
    metadata: Metadata, texts: Sequence[str], kinds: Sequence[int], unknown: int | None
) -> Callable[[str], list[int]]:
    """The encoder of scored pieces; control tokens and the unknown one are no pieces of a text."""
    if unknown is None:
        raise ModelFileError("The vocabulary has no token for unknown characters.", _AGAIN)
    scores = _numbers(metadata, "scores", len(texts), 0.0)
    ids = [token for token, kind in enumerate(kinds) if kind == TokenKind.NORMAL]
    # The library counts a score against the unknown piece from the lowest one of all pieces.
    lowest = min((scores[token] for token in ids), default=0.0)
    pieces = [(texts[token], float(scores[token])) for token in ids]
    own = [token for token, kind in enumerate(kinds) if kind == TokenKind.USER_DEFINED]
    pieces += [(texts[token], 0.0) for token in own]
    ids += [*own, unknown]
    table = _sequence(metadata, "tokenizer.ggml.precompiled_charsmap") or []
    if not all(isinstance(value, int) and -128 <= value < 256 for value in table):
        raise ModelFileError("tokenizer.ggml.precompiled_charsmap holds no bytes.", _AGAIN)
    replacements = Replacements(bytes(value & 0xFF for value in table)) if table else None
    encode = SubwordEncoder.from_scores(
        [*pieces, (_NO_TEXT, lowest)],
        unknown=len(pieces),
        remedy=_AGAIN,
    ).encode
    add_space = _flag(metadata, "add_space_prefix", False)
    merge_spaces = _flag(metadata, "remove_extra_whitespaces", False)

    def spelled(text: str) -> str:
        text = text if replacements is None else replacements.replaced(text)
        if merge_spaces:
            return "".join(SPACE + word for word in text.split(" ") if word)
        begins = add_space and bool(text.strip(" "))
        return SPACE * begins + text.replace(" ", SPACE)

    return lambda text: [ids[piece] for piece in encode(spelled(text))]


def _pre_tokenizer(metadata: Metadata) -> PreTokenizer:
    name = metadata.get("tokenizer.ggml.pre") or "default"
    rule = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
    if rule is None:
        raise UnsupportedModel(
            f"The pre-tokenizer {_short(name)} named by tokenizer.ggml.pre is unknown.",
            "Choose another model, or update the app.",
        )
    return rule


def _token_texts(metadata: Metadata) -> list[str]:
    texts = _strings(metadata, "tokens")
    if not texts:
        raise ModelFileError("The vocabulary tokenizer.ggml.tokens is empty.", _AGAIN)
    return [text or f"[EMPTY_{token}]" for token, text in enumerate(texts)]


def _strings(metadata: Metadata, name: str) -> list[str]:
    key = f"tokenizer.ggml.{name}"
    values = _sequence(metadata, key)
    if values is None:
        raise ModelFileError(f"The file has no {key}.", _AGAIN)
    try:
        "".join(values).encode("utf-8")
    except (TypeError, UnicodeEncodeError):
        raise ModelFileError(f"{key} holds elements that are not text.", _AGAIN) from None
    return values


def _numbers(metadata: Metadata, name: str, size: int, otherwise: float) -> list[Any]:
    """An array of numbers by token; `otherwise` for every token if the key is missing."""
    key = f"tokenizer.ggml.{name}"
    values = _sequence(metadata, key)
    if values is None:
        return [otherwise] * size
    if len(values) < size:
        raise ModelFileError(f"{key} is too short for {size} tokens: {len(values)}.", _AGAIN)
    if not all(isinstance(value, int | float) for value in values):
        raise ModelFileError(f"{key} holds elements that are not numbers.", _AGAIN)
    return values[:size]


def _sequence(metadata: Metadata, key: str) -> list[Any] | None:
    values: Any = metadata.get(key)
    if values is None:
        return None
    if isinstance(values, str | bytes | int | float):
        raise ModelFileError(f"{key} is not a list.", _AGAIN)
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _ids_within(metadata: Metadata, key: str, size: int) -> frozenset[int]:
    """The token ids of a list; those outside the vocabulary are left out, as in ggml."""
    ids = [_integer(key, value) for value in _sequence(metadata, key) or ()]
    return frozenset(token for token in ids if 0 <= token < size)


def _flag(metadata: Metadata, name: str, otherwise: bool) -> bool:
    key = f"tokenizer.ggml.{name}"
    value = metadata.get(key)
    if value is None:
        return otherwise
    if value not in (True, False):
        raise ModelFileError(f"{key} is {_short(value)}; it must be true or false.", _AGAIN)
    return bool(value)


def _integer(key: str, value: object) -> int:
    try:
        return index(cast(Any, value))
    except TypeError:
        raise ModelFileError(f"{key} is {_short(value)}, not a token id.", _AGAIN) from None


def _short(value: object) -> str:
    """A value from the file, shortened for an error message."""
    text = repr(value)
    return text if len(text) <= 64 else text[:61] + "..."
