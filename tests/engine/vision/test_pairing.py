"""Pairs of a text model and its picture encoder: found by what files hold, refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gguf import GGUFWriter

import every_architecture
import tiny
from encoder_keys import write_encoder
from engine.errors import EngineError, ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.loading.loader import load
from engine.models.seeing import interleaved_axes, sectioned_axes
from engine.vision.encoder_names import NAMED_EXACTLY, belonging
from engine.vision.pairing import EncoderFile, build_sight, find_encoder
from kernels.backends import BACKENDS
from kernels.ops import Spans

REFERENCE = BACKENDS["reference"]


def test_the_encoder_beside_a_model_is_found_by_what_it_holds(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    tiny.write(model)
    assert find_encoder(model, "gemma3", 64) is None
    (tmp_path / "mmproj-broken.gguf").write_bytes(b"GGUF and nothing else")
    (tmp_path / "mmproj.txt").write_text("no model", encoding="utf-8")
    write_encoder(tmp_path / "mmproj-other.gguf", "gemma3", 128)
    write_encoder(tmp_path / "mmproj-qwen.gguf", "qwen3vl_merger", 64)
    assert find_encoder(model, "gemma3", 64) is None
    large = write_encoder(tmp_path / "a picture encoder.gguf", "gemma3", 64, padding=500)
    assert find_encoder(model, "gemma3", 64) == large
    small = write_encoder(tmp_path / "z.gguf", "gemma3", 64)
    assert find_encoder(model, "gemma3", 64) == small


@pytest.mark.parametrize(
    ("encoder", "model", "expected"),
    [
        ("Qwen3.5-4B.mmproj-F16.gguf", "Qwen3.5-4B-Q4_K_M.gguf", 3),
        ("mmproj-Qwen_Qwen3.5-4B-f16.gguf", "Qwen_Qwen3.5-4B-UD-Q4_K_XL.gguf", 4),
        ("gemma-4-E4B-it-mmproj.gguf", "gemma-4-E4B_q4_0-it.gguf", 4),
        ("mmproj-model-f16.gguf", "gemma-3-4b-it-Q4_K_M.gguf", 0),
        ("mmproj/mmproj-BF16.gguf", "Q8_0/big-Q8_0-00001-of-00002.gguf", 0),
        ("Qwen3.5-4.mmproj.gguf", "Qwen3.5-4B-Q4_K_M.gguf", -1),
        ("gemma-3-4b-it.mmproj-F16.gguf", "medgemma-4b-it-Q4_K_M.gguf", -1),
        ("Sees-Q4_K_M.mmproj-F16.gguf", "Sees-Q4_K_M.gguf", NAMED_EXACTLY),
    ],
)
def test_a_name_tells_which_model_an_encoder_belongs_to(
    encoder: str, model: str, expected: int
) -> None:
    assert belonging(encoder, model) == expected


def test_of_encoders_that_fit_the_one_named_for_the_model_is_taken(tmp_path: Path) -> None:
    """Two models of equal dimensions in one folder may have different encoders."""
    sees, tuned, plain = (
        tmp_path / f"{name}-Q4_K_M.gguf" for name in ("Sees-4B", "Sees-4B-Tuned", "Plain")
    )
    for model in (sees, tuned, plain):
        tiny.write(model)
    of_tuned = write_encoder(tmp_path / "Sees-4B-Tuned.mmproj-F16.gguf", "gemma3", 64)
    assert find_encoder(tuned, "gemma3", 64) == of_tuned
    assert find_encoder(sees, "gemma3", 64) is None, "it is that of another model in the folder"
    of_sees = write_encoder(tmp_path / "Sees-4B.mmproj-F16.gguf", "gemma3", 64, padding=500)
    assert find_encoder(sees, "gemma3", 64) == of_sees
    assert find_encoder(tuned, "gemma3", 64) == of_tuned
    assert find_encoder(plain, "gemma3", 64) is None
    shared = write_encoder(tmp_path / "mmproj-F16.gguf", "gemma3", 64)
    assert find_encoder(plain, "gemma3", 64) == shared
    alone = write_encoder(tmp_path / "Sees-4B-Q4_K_M.mmproj-F16.gguf", "gemma3", 64, padding=900)
    assert find_encoder(sees, "gemma3", 64) == alone
    assert find_encoder(tuned, "gemma3", 64) == of_tuned
    sees.rename(tmp_path / "renamed.gguf")
    tuned.unlink()
    assert find_encoder(tmp_path / "renamed.gguf", "gemma3", 64) == shared


@pytest.mark.parametrize(
    ("projector", "output", "error", "words"),
    [
        ("glm4v", 64, UnsupportedModel, r"\(glm4v\) is made for models of another .*\(llama"),
        (
            "gemma3",
            64,
            UnsupportedModel,
            r"\(gemma3\) is made for models of another kind .*\(llama",
        ),
        ("pixtral", 63, ModelFileError, "its rows have 63 columns, and this model reads "),
        ("mystery", 64, UnsupportedModel, "is of the kind 'mystery', which this version does not"),
    ],
)
def test_a_wrong_pair_is_refused_in_a_sentence(
    tmp_path: Path, projector: str, output: int, error: type[EngineError], words: str
) -> None:
    tiny.write(tmp_path / "model.gguf", architecture="llama")
    encoder = write_encoder(tmp_path / "mmproj.gguf", projector, output)
    model = load(tmp_path / "model.gguf", backend="reference")
    with GGUFFile.open(tmp_path / "model.gguf") as text, pytest.raises(error, match=words):
        build_sight(text, model.decoder, encoder, REFERENCE)


def test_a_text_model_is_no_encoder(tmp_path: Path) -> None:
    tiny.write(tmp_path / "model.gguf", architecture="llama")
    model = load(tmp_path / "model.gguf", backend="reference")
    with (
        GGUFFile.open(tmp_path / "model.gguf") as text,
        pytest.raises(ModelFileError, match=r"^The file has no picture encoder\."),
    ):
        build_sight(text, model.decoder, tmp_path / "model.gguf", REFERENCE)


@pytest.mark.parametrize(
    ("architecture", "projector", "spans"),
    [
        ("gemma3", "gemma3", Spans.WHOLE),
        ("gemma4", "gemma4v", Spans.CAUSAL),  # as E2B and E4B: it has embeddings for layers
        ("gemma4-moe", "gemma4v", Spans.WINDOWED),
        ("gemma4", "gemma4uv", Spans.WINDOWED),
        ("qwen35", "qwen3vl_merger", Spans.CAUSAL),
        ("qwen35", "minicpmv4_6", Spans.CAUSAL),
        ("qwen2", "resampler", Spans.CAUSAL),
        ("llama", "pixtral", Spans.CAUSAL),
        ("lfm2", "lfm2", Spans.CAUSAL),
        ("llama", "idefics3", Spans.CAUSAL),
        ("qwen3", "internvl", Spans.CAUSAL),
        ("llama", "internvl", Spans.CAUSAL),
    ],
)
def test_each_kind_reads_images_in_its_way(
    tmp_path: Path, architecture: str, projector: str, spans: Spans
) -> None:
    path = tmp_path / "model.gguf"
    is_skeleton = architecture == "gemma4-moe"
    write = every_architecture.write_skeleton if is_skeleton else every_architecture.write
    write(architecture, path, context=200, window=64)
    model = load(path, backend="reference")
    encoder = write_encoder(tmp_path / "mmproj.gguf", projector, model.decoder.embedding.columns)
    with GGUFFile.open(path) as text:
        sight = build_sight(text, model.decoder, encoder, REFERENCE)
    assert sight.seeing.spans is spans
    assert (sight.seeing.axes is not None) == (projector == "qwen3vl_merger")
    assert sight.registry.vocabulary == model.decoder.head.weight.shape[0]
    assert isinstance(sight.encoder, EncoderFile)
    assert not sight.encoder.is_loaded


def write_sections(path: Path, sections: list[int] | None) -> None:
    """The metadata of a text model, which says how many pairs of RoPE each axis has."""
    writer = GGUFWriter(path, "qwen35")
    if sections:
        writer.add_array("qwen35.rope.dimension_sections", sections)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("sections", "axes"),
    [
        ([3, 3, 2, 0], [0, 1, 2, 0, 1, 2, 0, 1]),
        ([4, 2, 2], [0, 1, 2, 0, 1, 2, 0, 0]),
        ([8, 0, 0], [0] * 8),
    ],
)
def test_axes_are_interleaved(tmp_path: Path, sections: list[int], axes: list[int]) -> None:
    write_sections(tmp_path / "one.gguf", sections)
    with GGUFFile.open(tmp_path / "one.gguf") as file:
        assert torch.equal(interleaved_axes(file, 8), torch.tensor(axes, dtype=torch.int32))


def test_axes_may_stand_beside_each_other(tmp_path: Path) -> None:
    write_sections(tmp_path / "one.gguf", [2, 3, 1, 0])
    with GGUFFile.open(tmp_path / "one.gguf") as file:
        wanted = torch.tensor([0, 0, 1, 1, 1, 2], dtype=torch.int32)
        assert torch.equal(sectioned_axes(file, 6), wanted)
        with pytest.raises(ModelFileError, match=r"is for 6 pairs of channels, and RoPE rotates 8"):
            sectioned_axes(file, 8)


@pytest.mark.parametrize("axes", [interleaved_axes, sectioned_axes])
@pytest.mark.parametrize("sections", [[1, 2], [-1, 2, 3], None])
def test_sections_that_are_wrong_or_missing(
    tmp_path: Path, sections: list[int] | None, axes: Callable[[GGUFFile, int], torch.Tensor]
) -> None:
    write_sections(tmp_path / "one.gguf", sections)
    with (
        GGUFFile.open(tmp_path / "one.gguf") as file,
        pytest.raises(ModelFileError, match=r"'qwen35\.rope\.dimension_sections' is not 3 "),
    ):
        axes(file, 8)
