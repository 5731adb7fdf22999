"""Quantizer: kept metadata, converted matrices, atomic writes, compatibility with llama.cpp."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader

import architecture_files
import golden_quantize
import oracle
import tiny
import tiny_encoders
from engine.cli.commands import main
from engine.cli.quantize import format_for, quantize
from engine.errors import Cancelled, ModelFileError, RequestError
from engine.gguf.reader import GGUFFile, TensorInfo
from kernels.weights.formats import FORMATS, by_name
from kernels.weights.weight import Weight
from sessions import open_session

QUANTIZED = [row.name for row in FORMATS.values() if row.quantize]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return tiny.write(folder / "source.gguf", format="F32", hidden=256, head_dim=64, ffn=256)


def logits(path: Path) -> torch.Tensor:
    session = open_session(path)
    (hidden,) = session.prefill([5, 6, 7, 8])
    return session.logits(hidden)


@pytest.mark.usefixtures("caplog")  # formats without native kernels log a warning
@pytest.mark.parametrize("name", QUANTIZED)
def test_every_format_quantizes_within_its_error(name: str, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.gguf"
    summary = quantize(source, target, name.lower())
    assert f"{target.stat().st_size:,} bytes" in summary
    with GGUFFile.open(source) as before, GGUFFile.open(target) as after:
        assert list(after.tensors) == list(before.tensors)
        for info in after.tensors.values():
            assert info.shape == before.tensors[info.name].shape
            assert info.format.name == (name if len(info.shape) > 1 else "F32")
        assert dict(after.metadata) | {
            "general.file_type": 0,
            "general.quantization_version": 2,
            "oxibonsai.quant_format": "",
        } == dict(before.metadata) | {"oxibonsai.quant_format": ""}
        info = after.tensors["blk.0.ffn_down.weight"]
        found, wanted = (
            Weight.from_bytes(file.data(info.name), file.tensors[info.name].format, info.shape)
            for file in (after, before)
        )
        lost = (found.dense() - wanted.dense()).square().mean() / wanted.dense().square().mean()
        bits = info.format.bits_per_weight
        assert float(lost) < (0.75 if bits < 3 else 0.03)
    assert logits(target).isfinite().all()


# Of src/llama-quant.cpp (tensor_allows_quantization), the names of families that run here. With most
# of them in another format llama.cpp ends: it multiplies or adds them as F32.
LLAMA_CPP_COPIES = re.compile(
    r"_norm\.weight|ffn_gate_inp\.weight|altup|laurel|per_layer_model_proj|^position_embd\.weight"
    r"|^token_types\.weight|ssm_conv1d|shortconv\.conv\.weight"
)


def test_what_llama_cpp_copies_is_copied() -> None:
    copied: set[str] = set()
    for skeleton in architecture_files.recorded().values():
        for name, shape in skeleton.tensors.items():
            info = TensorInfo(name, shape, by_name("F32"), 0, 0, 0)
            changes = format_for(info, by_name("Q8_0")) is not info.format
            is_copied = len(shape) < 2 or bool(found := LLAMA_CPP_COPIES.search(name))
            assert changes != (is_copied or not name.endswith(".weight")), name
            if len(shape) > 1 and is_copied:
                copied.add(found[0])
    assert {
        "ssm_conv1d",
        "shortconv.conv.weight",
        "altup",
        "laurel",
        "per_layer_model_proj",
    } < copied


@pytest.mark.parametrize("name", ["position_embd.weight", "token_types.weight"])
def test_positions_and_token_types_of_encoders_are_copied(name: str, tmp_path: Path) -> None:
    source = tiny_encoders.write(tmp_path / "bert.gguf")
    quantize(source, tmp_path / "target.gguf", "Q8_0")
    with GGUFFile.open(tmp_path / "target.gguf") as file:
        assert file.tensors[name].format.name == "F32"
        assert file.tensors["token_embd.weight"].format.name == "F16"


RECORDED = json.loads(golden_quantize.GOLDEN.read_text(encoding="utf-8"))


def test_golden_answers_cover_every_format_of_llama_cpp() -> None:
    ours = {name for name in QUANTIZED if by_name(name).file_type is not None}
    assert set(RECORDED["tiny"]) == ours
    assert set(RECORDED["smollm2"]) == set(golden_quantize.REAL_FORMATS)
    for of, prompts, tokens in (("tiny", 6, 8), ("smollm2", 4, 16)):
        for answers in RECORDED[of].values():
            assert [len(each["answer"]) for each in answers] == [tokens] * prompts


@pytest.mark.sweep
@pytest.mark.usefixtures("caplog")
@pytest.mark.parametrize("name", RECORDED["tiny"])
def test_llama_cpp_gives_the_same_answers_with_the_quantized_file(
    name: str, tmp_path: Path
) -> None:
    model = golden_quantize.tiny_model(tmp_path)
    _answers_the_same(model.path, name, RECORDED["tiny"][name], tmp_path)
    gaps = _gaps(tmp_path / "target.gguf", RECORDED["tiny, blindly"][name])
    assert float(gaps.mean()) <= (0.001 if name in ("F32", "F16", "BF16") else 0.02)


# The tiny model above covers every format by default; the real one takes 20 s for IQ4_NL.
@pytest.mark.sweep
@pytest.mark.real
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("Q4_0", "Q8_0") else pytest.mark.slow)
        for name in golden_quantize.REAL_FORMATS
    ],
)
def test_llama_cpp_gives_the_same_answers_with_a_quantized_real_model(
    name: str, starter_model: Path, tmp_path: Path
) -> None:
    _answers_the_same(starter_model, name, RECORDED["smollm2"][name], tmp_path)
    gaps = _gaps(tmp_path / "target.gguf", RECORDED["smollm2, blindly"][name])
    assert float(gaps.mean()) <= (0.001 if name == "F16" else 0.02)


def _answers_the_same(
    source: Path, name: str, asked: list[dict[str, list[int]]], folder: Path
) -> None:
    quantize(source, folder / "target.gguf", name)
    prompts = [each["prompt"] for each in asked]
    found = golden_quantize.ours(folder / "target.gguf", prompts, len(asked[0]["answer"]))
    assert found == [each["answer"] for each in asked]


def _gaps(path: Path, asked: list[dict[str, list[int]]]) -> torch.Tensor:
    """Difference between our largest logit and our logit of each token of llama.cpp's answer.

    0 where both choose the same token; the test fails where the difference is large.
    """
    session, gaps = open_session(path, golden_quantize.CONTEXT), list[float]()
    for each in asked:
        session.rewind(0)
        logits = session.read(each["prompt"])
        for token in each["answer"]:
            gaps.append(float(logits.max() - logits[token]))
            assert gaps[-1] < 0.3, (each, token)
            logits = session.step(token)
    return torch.tensor(gaps)


def test_gguf_library_reads_the_file(source: Path, tmp_path: Path) -> None:
    quantize(source, tmp_path / "target.gguf", "Q4_K")
    ours, theirs = GGUFFile.open(tmp_path / "target.gguf"), GGUFReader(tmp_path / "target.gguf")
    with ours:
        assert [tensor.name for tensor in theirs.tensors] == list(ours.tensors)
        for tensor in theirs.tensors:
            assert np.array_equal(
                tensor.data.reshape(-1).view(np.uint8),
                np.frombuffer(ours.data(tensor.name), np.uint8),
            )
        assert set(theirs.fields) - {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"} == set(
            ours.metadata
        )


def test_rows_that_are_not_whole_blocks_become_q8_0(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "source.gguf", format="F32", hidden=96, head_dim=24, heads=4)
    quantize(source, tmp_path / "target.gguf", "Q4_K")
    with GGUFFile.open(tmp_path / "target.gguf") as file:
        assert file.tensors["blk.0.attn_q.weight"].format is by_name("Q8_0")
        assert file.metadata["general.file_type"] == 14
    logits(tmp_path / "target.gguf")


def test_norms_with_weights_per_head_are_not_quantized(tmp_path: Path) -> None:
    state = oracle.recorded("command-r-plus")
    del state["tokens"], state["logits"]
    source = oracle.write_gguf(oracle.CASES["command-r-plus"], state, tmp_path / "source.gguf")
    quantize(source, tmp_path / "target.gguf", "F16")
    with GGUFFile.open(tmp_path / "target.gguf") as file:
        assert file.tensors["blk.63.attn_q.weight"].format is by_name("F16")
        assert file.tensors["blk.63.attn_q_norm.weight"].format is by_name("F32")


def test_unknown_formats_and_existing_targets_are_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.gguf"
    with pytest.raises(RequestError, match="no quantizer for 'IQ1_S'") as refused:
        quantize(source, target, "IQ1_S")
    assert "Q4_K" in refused.value.remedy
    target.write_bytes(b"mine")
    with pytest.raises(RequestError, match="already exists"):
        quantize(source, target, "Q4_0")
    assert target.read_bytes() == b"mine"


def test_cancelled_quantization_leaves_no_file(source: Path, tmp_path: Path) -> None:
    calls = 0

    def checkpoint() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise Cancelled

    with pytest.raises(Cancelled):
        quantize(source, tmp_path / "target.gguf", "Q4_0", checkpoint=checkpoint)
    assert not list(tmp_path.iterdir())


def test_non_finite_weights_are_refused(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "source.gguf", format="F32")
    with GGUFFile.open(source) as file:
        offset = file.tensors["blk.0.ffn_up.weight"].offset
    stored = bytearray(source.read_bytes())
    stored[offset : offset + 4] = np.float32(np.inf).tobytes()
    source.write_bytes(stored)
    with pytest.raises(ModelFileError, match=r"blk\.0\.ffn_up\.weight.*infinite or NaN"):
        quantize(source, tmp_path / "target.gguf", "Q4_0")
    assert not (tmp_path / "target.gguf").exists()


def test_progress_ends_at_the_total(source: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    quantize(source, tmp_path / "t.gguf", "Q8_0", lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1]


def test_the_command_line_quantizes(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target.gguf"
    assert main(["quantize", str(source), str(target), "--type", "Q5_K"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("target.gguf: ")
    assert "100 %" in printed.err
    assert main(["quantize", str(source), str(target), "--type", "Q5_K"]) == 1
    assert "already exists" in capsys.readouterr().err
