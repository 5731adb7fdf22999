"""The part of the page key that says how a model computes: it differs wherever the numbers do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import every_architecture
import oracle
from answers import GREEDY, answer, next_logits
from engine import CacheType
from engine.adapters.stack import NO_ADAPTERS
from engine.errors import FaultKind, SnapshotError
from engine.loading.loader import LoadedModel, load
from engine.state.disk.disk_tier import state_key
from engine.state.disk.restore import check_origin
from engine.state.disk.sequence_file import SavedSequence
from kernels import backends

SHA = "0" * 64
SHORT, LONG = 40, 200  # tokens of contexts, the second one beyond what any case was trained for
# RoPE of these depends on the context, by which they are longer than in training.
DEPENDENT = ("llama-dynamic", "phi3-long", "phi3-short")


def written(name: str, folder: Path) -> tuple[Path, list[int]]:
    """A model of `oracle.py` in a file, and tokens for it."""
    state = oracle.recorded(name)
    tokens = state.pop("tokens").tolist()
    state.pop("logits")
    return oracle.write_gguf(oracle.CASES[name], state, folder / "model.gguf"), tokens


def loaded(path: Path, context: int, **options: object) -> LoadedModel:
    return load(path, context=context, ids_only=True, **options)  # type: ignore[arg-type]


def logits(model: LoadedModel, tokens: list[int]) -> torch.Tensor:
    scheduler = model.new_scheduler()
    answer(scheduler, tokens[:-1], GREEDY, max_tokens=1)
    return next_logits(scheduler, tokens)


@pytest.mark.parametrize("name", [name for name in oracle.CASES if name != "starcoder"])
def test_the_key_differs_where_the_context_changes_the_numbers(name: str, tmp_path: Path) -> None:
    """Learned positions, which starcoder has, allow no other context than the trained one."""
    path, tokens = written(name, tmp_path)
    trained = oracle.CASES[name].scaling.get("original_max_position_embeddings", 0)
    models = [loaded(path, context) for context in (min(trained, SHORT) or SHORT, LONG)]
    tokens = tokens[: models[0].plan.context - 2]
    same = torch.equal(*(logits(model, tokens) for model in models))
    keys = {state_key(SHA, NO_ADAPTERS, model) for model in models}
    assert same == (name not in DEPENDENT)
    assert len(keys) == (1 if same else 2)


@pytest.mark.sweep
@pytest.mark.parametrize("name", every_architecture.names())
def test_the_key_of_every_kind_of_layer_is_that_of_its_numbers(name: str, tmp_path: Path) -> None:
    path = every_architecture.write(name, tmp_path / "m.gguf", context=1024, window=64)
    models = [load(path, context=context) for context in (SHORT, 1024)]
    tokens = list(range(3, SHORT - 2))
    assert torch.equal(*(logits(model, tokens) for model in models))
    assert len({state_key(SHA, NO_ADAPTERS, model) for model in models}) == 1


def test_the_key_names_the_backend_and_how_it_stores_weights(tmp_path: Path) -> None:
    path, _ = written("llama", tmp_path)
    found = [loaded(path, SHORT, backend=name).computation for name in ("reference", "torch:cpu")]
    assert len(set(found)) == 2
    if "cpu" in backends.BACKENDS:
        native = loaded(path, SHORT, backend="cpu")
        assert native.computation not in found
        assert native.computation == loaded(path, SHORT, cache=CacheType.F16).computation


def test_saved_pages_of_another_context_are_refused(tmp_path: Path) -> None:
    path, _ = written("phi3-long", tmp_path)
    short, long = loaded(path, 32), loaded(path, LONG)
    saved = SavedSequence(tmp_path, 0, 0, state_key(SHA, NO_ADAPTERS, short))
    check_origin(saved, state_key(SHA, NO_ADAPTERS, short), 32)
    with pytest.raises(SnapshotError, match="another context size") as refused:
        check_origin(saved, state_key(SHA, NO_ADAPTERS, long), LONG)
    assert refused.value.fault.kind is FaultKind.SAVED_COMPUTATION
