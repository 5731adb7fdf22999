"""Sampling options of the command line: what each sets, precedence, and refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import tiny
from engine import RequestError, Sampling
from engine.cli.commands import main
from engine.cli.options import parser
from engine.cli.sampling_options import sampling


def parsed(*arguments: str, recommended: Sampling | None = None) -> Sampling:
    names = "chat complete embed rerank tokenize logits perplexity info bench quantize serve"
    run = dict.fromkeys(names.split(), lambda _: None)
    options = parser("", run).parse_args(["complete", "-m", "x", *arguments])
    return sampling(options, recommended)


def test_nothing_given_is_what_the_file_recommends() -> None:
    assert parsed() == Sampling()
    recommended = Sampling(top_k=7, temperature=0.2, banned=("x",))
    assert parsed(recommended=recommended) == recommended
    assert parsed("--temp", "0.7", recommended=recommended) == Sampling(top_k=7, banned=("x",))


@pytest.mark.parametrize(
    ("flag", "value", "field"),
    [
        ("--temp", 0.5, "temperature"),
        ("--temperature", 0.5, "temperature"),
        ("--dynatemp-range", 0.5, "temperature_range"),
        ("--dynatemp-exp", 1.5, "temperature_exponent"),
        ("--top-k", 3, "top_k"),
        ("--top-p", 0.5, "top_p"),
        ("--min-p", 0.5, "min_p"),
        ("--typical", 0.5, "typical_p"),
        ("--typical-p", 0.5, "typical_p"),
        ("--top-n-sigma", 1.5, "top_n_sigma"),
        ("--xtc-probability", 0.5, "xtc_probability"),
        ("--xtc-threshold", 0.2, "xtc_threshold"),
        ("--mirostat", 2, "mirostat"),
        ("--mirostat-lr", 0.2, "mirostat_eta"),
        ("--mirostat-ent", 4.0, "mirostat_tau"),
        ("--repeat-penalty", 1.5, "repeat_penalty"),
        ("--repeat-last-n", -1, "penalty_window"),
        ("--frequency-penalty", 0.5, "frequency_penalty"),
        ("--presence-penalty", 0.5, "presence_penalty"),
        ("--dry-multiplier", 0.8, "dry_multiplier"),
        ("--dry-base", 2.0, "dry_base"),
        ("--dry-allowed-length", 3, "dry_allowed_length"),
        ("--dry-penalty-last-n", 100, "dry_window"),
        ("--seed", 5, "seed"),
    ],
)
def test_numbers(flag: str, value: float, field: str) -> None:
    found = getattr(parsed(flag, str(value)), field)
    assert (found, type(found)) == (value, type(value))


def test_texts_may_be_given_several_times() -> None:
    assert parsed("--ban", "one", "--ban", r"two\n\t\\n").banned == ("one", "two\n\t\\n")
    breakers = parsed("--dry-sequence-breaker", r"\n", "--dry-sequence-breaker", "-")
    assert breakers.dry_breakers == ("\n", "-")
    assert parsed("--dry-sequence-breaker", "none").dry_breakers == ()


def test_logit_bias() -> None:
    bias = parsed("--logit-bias", "15+1.5", "--logit-bias", "7-inf", "--logit-bias", "8-2")
    assert bias.logit_bias == ((15, 1.5), (7, -math.inf), (8, -2.0))
    assert parsed("--ignore-eos").ignore_end


@pytest.mark.parametrize(
    "bad", ["15", "15+", "+1", "x+1", "15+x", "-15+1", "1+1+1", "9" * 30 + "+1"]
)
def test_a_malformed_bias_is_refused(bad: str) -> None:
    with pytest.raises(RequestError, match="not a token and a value"):
        parsed(f"--logit-bias={bad}")


@pytest.fixture
def model(tmp_path: Path) -> str:
    keys = {"general.sampling.top_k": 1, "general.sampling.temp": 0.6}
    return str(tiny.write(tmp_path / "tiny.gguf", metadata=keys))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_answers_obey_the_options(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("complete", "-m", model, "-p", "hello", "-n", "6", "--ignore-eos")
    greedy = run(capsys, *options, "--temp", "0")["token_ids"]
    assert run(capsys, *options)["token_ids"] == greedy  # top-k 1, as the file recommends
    assert run(capsys, *options, "--top-k", "0", "--temp", "2")["token_ids"] != greedy
    assert isinstance(greedy, list)
    without = run(capsys, *options, "--logit-bias", f"{greedy[0]}-inf")["token_ids"]
    assert isinstance(without, list)
    assert greedy[0] not in without
    assert run(capsys, *options, "--logit-bias", "50+1000")["token_ids"] == [50] * 6


def test_an_answer_that_repeats_itself_is_stopped(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("complete", "-m", model, "-p", "hello", "-n", "170", "--logit-bias", "50+1000")
    made = run(capsys, *options)
    assert (made["token_ids"], made["finish_reason"]) == ([50] * 160, "repetition")
    assert main([*options]) == 0
    assert "stopped: the model was repeating itself]" in capsys.readouterr().err
    free = run(capsys, *options, "--allow-loops")
    assert (free["token_ids"], free["finish_reason"]) == ([50] * 170, "length")


def test_banned_texts_do_not_appear(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    legible = [f"--logit-bias={3 + byte}-inf" for byte in range(256) if not 32 <= byte < 127]
    options = ("complete", "-m", model, "-p", "hello", "-n", "12", "--ignore-eos", *legible)
    plain = str(run(capsys, *options)["text"])
    assert plain[3:6] not in str(run(capsys, *options, "--ban", plain[3:6])["text"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--mirostat", "3"), "version of mirostat"),
        (("--dry-base", "0.5"), "DRY base"),
        (("--xtc-probability", "1.5"), "XTC probability"),
        (("--top-n-sigma", "nan"), "top-n-sigma"),
        (("--logit-bias", "99999+1"), "token 99999"),
        (("--logit-bias", "5+inf"), "logit bias of token 5"),
        (("--ban", "x" * 1001), "banned texts"),
        (("--mirostat", "x"), "invalid int value"),
    ],
)
def test_bad_values_are_one_sentence(
    model: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    assert main(["complete", "-m", model, "-p", "hello", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert sentence in printed.err
    assert printed.err.count("\n") == 1


def test_info_shows_what_the_file_recommends(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = run(capsys, "info", "-m", model)
    assert facts["recommended_sampling"] == {"temperature": pytest.approx(0.6), "top_k": 1}
    assert main(["info", "-m", model]) == 0
    assert "  top_k: 1\n" in capsys.readouterr().out
    plain = str(tiny.write(tmp_path / "plain.gguf"))
    assert "recommended_sampling" not in run(capsys, "info", "-m", plain)


def test_tokens_that_the_file_suppresses_are_never_generated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = ("complete", "-p", "Hello", "-n", "12", "--temp", "0")
    plain = run(capsys, *command, "-m", str(tiny.write(tmp_path / "plain.gguf")))
    taken = sorted(set(plain["token_ids"]))
    keys = {"tokenizer.ggml.suppress_tokens": taken}
    path = str(tiny.write(tmp_path / "suppressed.gguf", metadata=keys))
    for draft in ((), ("--draft", str(tmp_path / "plain.gguf"))):
        found = run(capsys, *command, *draft, "-m", path)
        assert not set(found["token_ids"]) & set(taken)
        assert len(found["token_ids"]) == 12


def test_a_top_k_of_minus_one_is_none_on_the_command_line_and_in_a_file(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keys = {"general.sampling.top_k": -1}
    other = str(tiny.write(tmp_path / "minus-one.gguf", metadata=keys))
    command = ("complete", "-p", "hello", "-n", "40", "--seed", "5", "--temp", "3")
    command += ("--top-p", "1", "--min-p", "0", "--ignore-eos")
    off = run(capsys, *command, "-m", model, "--top-k", "0")["token_ids"]
    assert run(capsys, *command, "-m", model, "--top-k", "-1")["token_ids"] == off
    assert run(capsys, *command, "-m", other)["token_ids"] == off
    assert run(capsys, *command, "-m", other, "--top-k", "40")["token_ids"] != off


def test_info_names_sampling_that_means_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keys = {"general.sampling.temp": math.nan, "general.sampling.top_p": 0.95}
    path = str(tiny.write(tmp_path / "tiny.gguf", metadata=keys))
    facts = run(capsys, "info", "-m", path)
    assert facts["recommended_sampling"] == {"top_p": pytest.approx(0.95)}
    assert facts["unusable_sampling"] == ["general.sampling.temp: nan"]
