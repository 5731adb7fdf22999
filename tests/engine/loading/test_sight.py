"""Loading a model that sees: with an encoder beside it or a given one, and where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import seeing_files
import tiny
from engine import Blindness, BlindReason, Failed, Load, ModelLoaded
from engine.errors import Fault, FaultKind, ModelFileError, RequestError, UnsupportedModel
from engine.loading.loader import LoadedModel, load
from engine.vision import pairing
from engine.vision.encoder_memory import EncoderSizes, read_encoder_sizes
from engine.vision.pairing import find_encoder
from engine.vision.registry import ROWS_BYTES
from engine_bench import Bench
from fake_gpu import FakeGpu

PIXELS = torch.zeros(56, 28, 3)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeing_files.write_pair(tmp_path_factory.mktemp("pair"))


def loaded(path: Path, encoder: Path | None = None, **options: object) -> LoadedModel:
    return load(path, sees=True, encoder=encoder, **options)  # type: ignore[arg-type]


def test_a_model_sees_with_the_encoder_beside_it(pair: Path) -> None:
    model = loaded(pair, backend="reference")
    assert model.encoder is not None
    assert model.encoder.path == pair.with_name("mmproj-tiny.gguf")
    assert not model.encoder.is_loaded
    assert model.sight is not None
    assert model.sight.registry.vocabulary == model.tokenizer.size
    assert model.blind is None


def test_only_a_model_that_is_to_see_looks_for_an_encoder(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.loading.sight.encoder_beside", lambda *given: pytest.fail("looked"))
    assert load(pair, backend="reference").sight is None  # as a draft model is
    assert loaded(pair, backend="reference", ids_only=True).sight is None


def test_a_given_encoder_is_used_wherever_it_lies(tmp_path: Path) -> None:
    model = seeing_files.write_model(tmp_path / "tiny.gguf")
    (tmp_path / "others").mkdir()
    assert loaded(model, backend="reference").encoder is None
    encoder = seeing_files.write_encoder(tmp_path / "others" / "eyes.gguf", 256)
    found = loaded(model, encoder, backend="reference").encoder
    assert found is not None
    assert found.path == encoder


def test_a_given_encoder_that_does_not_fit_is_refused_before_weights_are_read(
    pair: Path, tmp_path: Path
) -> None:
    def reached() -> None:
        pytest.fail("memory is allocated")

    narrow = seeing_files.write_encoder(tmp_path / "narrow.gguf", 128)
    with pytest.raises(
        ModelFileError, match=r"its rows have 128 columns, and this model reads 256"
    ):
        loaded(pair, narrow, before_weights=reached)
    with pytest.raises(ModelFileError, match=r"^The file has no picture encoder\.$"):
        loaded(pair, pair, before_weights=reached)
    with pytest.raises(ModelFileError, match=r"^There is no file "):
        loaded(pair, tmp_path / "none.gguf", before_weights=reached)
    other = tiny.write(tmp_path / "llama.gguf")
    with pytest.raises(UnsupportedModel, match=r"made for models of another kind"):
        loaded(other, pair.with_name("mmproj-tiny.gguf"), before_weights=reached)


def test_a_vocabulary_without_marks_of_pictures_is_refused(tmp_path: Path) -> None:
    model = seeing_files.write_model(tmp_path / "tiny.gguf", seeing_files.words(("<|image_pad|>",)))
    encoder = seeing_files.write_encoder(tmp_path / "mmproj.gguf", 256)
    with pytest.raises(UnsupportedModel, match=r"has no token <\|vision_start\|>, so it was not"):
        loaded(model, encoder, backend="reference")
    found = loaded(model, backend="reference")
    assert found.sight is None
    assert found.blind is not None
    assert found.blind.reason is BlindReason.ENCODER
    assert found.blind.sentence.startswith("the model's vocabulary has no token <|vision_start|>")


def test_an_encoder_beside_a_model_that_cannot_be_used_is_not_passed_over_in_silence(
    pair: Path, tmp_path: Path
) -> None:
    model = tmp_path / "tiny.gguf"
    model.write_bytes(pair.read_bytes())
    assert loaded(model, backend="reference").blind is None  # there is no file
    beside = seeing_files.write_encoder(tmp_path / "mmproj-F16.gguf", 128)
    blind = loaded(model, backend="reference").blind
    assert blind is not None
    assert blind.reason is BlindReason.ENCODER
    assert "its rows have 128 columns, and this model reads 256" in blind.sentence
    beside.write_bytes(beside.read_bytes()[:900])
    blind = loaded(model, backend="reference").blind
    assert blind is not None
    assert blind.reason is BlindReason.DAMAGED
    model.with_name("other.gguf").write_bytes(b"GGUF")  # whose it may be as well
    assert loaded(model, backend="reference").blind is None
    beside.rename(tmp_path / "tiny.mmproj.gguf")
    blind = loaded(model, backend="reference").blind
    assert blind is not None
    assert blind.reason is BlindReason.DAMAGED


def test_a_model_on_a_device_sees_with_an_encoder_there(gpu: FakeGpu, pair: Path) -> None:
    model = loaded(pair)
    assert [one.name for one in model.runs_on] == ["cuda"]
    assert model.encoder is not None
    host, device = model.plan.devices
    assert (host.encoder_bytes, model.blind) == (ROWS_BYTES, None)
    assert device.encoder_bytes == read_encoder_sizes(model.encoder.path).device_bytes(gpu.backend)
    before = gpu.products
    rows = model.encoder.encode(PIXELS)
    assert gpu.products > before
    assert rows.device == torch.device("cpu")  # not the GPU's, which may fail


def test_a_picture_that_a_device_has_no_memory_for_is_refused(gpu: FakeGpu, pair: Path) -> None:
    """With a sentence about the picture: the model goes on, and reads the next one."""
    encoder = loaded(pair).encoder
    assert encoder is not None
    gpu.fail(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    with pytest.raises(RequestError, match="needs too much memory to read") as caught:
        encoder.encode(PIXELS)
    assert caught.value.fault == Fault(FaultKind.PICTURE, "large")
    gpu.fault = None
    assert encoder.encode(PIXELS).isfinite().all()
    gpu.fail(RuntimeError("CUDA error: an illegal memory access was encountered"))
    with pytest.raises(RuntimeError, match="illegal"):  # of the device itself
        encoder.encode(PIXELS)


def test_the_event_of_a_load_says_what_it_sees_with(bench: Bench, pair: Path) -> None:
    found = bench.load(pair)
    assert (found.encoder, found.blind) == (pair.with_name("mmproj-tiny.gguf"), None)
    (*_, failed) = _sent(bench, Load(pair, encoder=pair))
    assert isinstance(failed, Failed)
    assert failed.message == "The file has no picture encoder."


def test_the_encoder_itself_is_no_model(bench: Bench, pair: Path) -> None:
    (*_, failed) = _sent(bench, Load(pair.with_name("mmproj-tiny.gguf")))
    assert isinstance(failed, Failed)
    assert failed.message.startswith("The file is the image or audio encoder of a model")
    assert failed.remedy == "Choose the file of the model itself."


def _sent(bench: Bench, request: Load) -> list[object]:
    bench.send(2, request)
    return list(bench.until(ModelLoaded, Failed))


def test_the_padding_token_is_that_of_the_vocabulary(pair: Path, tmp_path: Path) -> None:
    for number, (pad, wanted) in enumerate(((7, 7), (1 << 20, 0), (None, 0))):
        path = tmp_path / str(number) / "tiny.gguf"
        path.parent.mkdir()
        tiny.rewrite(pair, path, {"tokenizer.ggml.padding_token_id": pad})
        model = loaded(path, pair.with_name("mmproj-tiny.gguf"), backend="reference")
        assert model.sight is not None
        assert model.sight._pad == wanted


def test_of_files_that_are_no_encoders_the_beginning_is_read(
    pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    check = pairing.check_encoder

    def watched(path: Path, *given: object) -> object:
        opened.append(path)
        return check(path, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(pairing, "check_encoder", watched)
    model = tmp_path / "model.gguf"
    for number in range(300):
        (tmp_path / f"{number:03}.gguf").symlink_to(pair)
    assert find_encoder(model, "qwen35", 256) is None
    assert opened == []
    last = seeing_files.write_encoder(tmp_path / "199.gguf.gguf", 256)
    assert find_encoder(model, "qwen35", 256) is None  # one of too many
    last.rename(tmp_path / "000.0.gguf")
    assert find_encoder(model, "qwen35", 256) == tmp_path / "000.0.gguf"
    (tmp_path / "z-MMPROJ-f16.gguf").symlink_to(tmp_path / "000.0.gguf")
    del opened[:]
    assert find_encoder(model, "qwen35", 256) == tmp_path / "z-MMPROJ-f16.gguf"
    assert opened == [tmp_path / "z-MMPROJ-f16.gguf"]
    assert find_encoder(model, "qwen3", 256) is None  # nothing is made for it


def test_a_model_without_room_for_its_encoder_says_so(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EncoderSizes, "buffer_bytes", 1 << 50)
    model = loaded(pair)
    assert model.sight is None
    sentence = "there is no room for its picture encoder in the memory."
    assert model.blind == Blindness(BlindReason.MEMORY, sentence)
    assert model.plan.encoder_bytes == 0
