"""Sampling options of the command line; names follow llama.cpp.

An option that is not given has the value that the model file recommends, else the usual one.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import fields, replace
from typing import Any

from engine.errors import RequestError
from engine.messages import Sampling

_BIAS = re.compile(r"(\d{1,9})([+-].+)")
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\\": "\\"}
_NO_BREAKERS = "none"
# Flags, field of Sampling, type, explanation.
_NUMBERS: tuple[tuple[tuple[str, ...], str, type, str], ...] = (
    (("--temp", "--temperature"), "temperature", float, "0: always the most likely"),
    (("--dynatemp-range",), "temperature_range", float, "temperature +- this by entropy; 0: off"),
    (("--dynatemp-exp",), "temperature_exponent", float, "exponent of the dynamic temperature"),
    (("--top-k",), "top_k", int, "0 or -1: off"),
    (("--top-p",), "top_p", float, "1: off"),
    (("--min-p",), "min_p", float, "0: off"),
    (("--typical", "--typical-p"), "typical_p", float, "1: off"),
    (("--top-n-sigma", "--top-nsigma"), "top_n_sigma", float, "standard deviations; 0: off"),
    (("--xtc-probability",), "xtc_probability", float, "of excluding top choices; 0: off"),
    (("--xtc-threshold",), "xtc_threshold", float, "probability of a top choice; above 0.5: off"),
    (("--mirostat",), "mirostat", int, "1 or 2 replaces the filters; 0: off"),
    (("--mirostat-lr",), "mirostat_eta", float, "mirostat's learning rate"),
    (("--mirostat-ent",), "mirostat_tau", float, "mirostat's target entropy"),
    (("--repeat-penalty",), "repeat_penalty", float, "1: off"),
    (("--repeat-last-n",), "penalty_window", int, "tokens that are penalized; -1: all"),
    (("--frequency-penalty",), "frequency_penalty", float, "0: off"),
    (("--presence-penalty",), "presence_penalty", float, "0: off"),
    (("--dry-multiplier",), "dry_multiplier", float, "penalty of repeated texts; 0: off"),
    (("--dry-base",), "dry_base", float, "growth of DRY's penalty per token"),
    (("--dry-allowed-length",), "dry_allowed_length", int, "tokens that may be repeated"),
    (("--dry-penalty-last-n",), "dry_window", int, "tokens that DRY compares; -1: all"),
    (("--seed",), "seed", int, "-1: random"),
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options to a subcommand."""
    for flags, name, kind, text in _NUMBERS:
        parser.add_argument(
            *flags, dest=name, type=kind, metavar="N", help=f"{text} ({getattr(Sampling(), name)})"
        )
    parser.add_argument(
        "--dry-sequence-breaker",
        dest="dry_breakers",
        action="append",
        metavar="STRING",
        help=rf"a text that no repetition spans, instead of \n : \" *; {_NO_BREAKERS}: no such text",
    )
    parser.add_argument(
        "--logit-bias",
        action="append",
        metavar="ID(+/-)VALUE",
        help="added to the logit of a token, as in 15043+1; 15043-inf: never",
    )
    parser.add_argument(
        "--ignore-eos",
        dest="ignore_end",
        action="store_true",
        default=None,
        help="go on after the end of the answer",
    )
    parser.add_argument(
        "--ban",
        dest="banned",
        action="append",
        metavar="STRING",
        help=r"a text that the answer never contains; \n is a line break",
    )


def sampling(options: argparse.Namespace, recommended: Sampling | None) -> Sampling:
    """The sampling parameters: those given above those recommended above the usual ones."""
    return replace(recommended or Sampling(), **given(options))


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of `Sampling` that are given."""
    found: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(Sampling)}
    given = {name: value for name, value in found.items() if value is not None}
    if "dry_breakers" in given:
        texts = tuple(map(_unescaped, given["dry_breakers"]))
        given["dry_breakers"] = () if _NO_BREAKERS in texts else texts
    if "banned" in given:
        given["banned"] = tuple(map(_unescaped, given["banned"]))
    if "logit_bias" in given:
        given["logit_bias"] = tuple(map(_bias, given["logit_bias"]))
    return given


def _bias(text: str) -> tuple[int, float]:
    found = _BIAS.fullmatch(text)
    try:
        if found:
            return int(found[1]), float(found[2])
    except ValueError:
        pass
    raise RequestError(
        f"--logit-bias {text!r} is not a token and a value.", "Write 15043+1, 15043-1 or 15043-inf."
    )


def _unescaped(text: str) -> str:
    return re.sub(r"\\[ntr\\]", lambda found: _ESCAPES[found[0]], text)
