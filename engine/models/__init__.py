"""Model architectures: GGUF `general.architecture` to the function that builds the decoder."""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import Fault, FaultKind, ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.both_ways import in_both_directions, key_of, refusal
from engine.models.config import WITHOUT_ATTENTION
from engine.models.families import (
    apertus,
    arcee,
    bailing,
    bert,
    bitnet,
    cohere,
    cohere_moe,
    deepseek2,
    ernie,
    exaone4,
    falcon_h1,
    gemma,
    gemma3n,
    gemma4,
    glm4,
    glm4moe,
    gpt_oss,
    granite,
    hunyuan,
    laguna,
    lfm2,
    llama,
    llama4,
    mamba2,
    mellum,
    minicpm,
    mistral3,
    nanbeige,
    nemotron_h,
    olmo2,
    olmoe,
    phi,
    qwen,
    qwen35,
    seed_oss,
    smollm3,
    spark,
    starcoder,
)
from engine.models.layers import Decoder
from engine.models.nearest import nearest, title
from engine.models.weights import Weights

# Arguments: file, weights, and the context in tokens, which some RoPE scalings depend on.
Build = Callable[[GGUFFile, Weights, int], Decoder]

ARCHITECTURES: dict[str, Build] = {
    "apertus": apertus.build,
    "arcee": arcee.build,
    "bailingmoe2": bailing.build_bailingmoe2,
    "bailingmoe3": bailing.build_bailingmoe3,
    "bitnet": bitnet.build,
    "cohere2": cohere.build_cohere2,
    "cohere2moe": cohere_moe.build,
    "command-r": cohere.build_command_r,
    "deepseek2": deepseek2.build,
    "ernie4_5": ernie.build_ernie4_5,
    "ernie4_5-moe": ernie.build_ernie4_5_moe,
    "exaone4": exaone4.build,
    "falcon-h1": falcon_h1.build,
    "gemma": gemma.build_gemma,
    "gemma2": gemma.build_gemma2,
    "gemma3": gemma.build_gemma3,
    "gemma3n": gemma3n.build,
    "gemma4": gemma4.build,
    "glm4": glm4.build,
    "glm4moe": glm4moe.build,
    "gpt-oss": gpt_oss.build,
    "granite": granite.build,
    "granite_swa": granite.build,
    "granitehybrid": granite.build,
    "granitemoe": granite.build,
    "hunyuan-dense": hunyuan.build,
    "laguna": laguna.build,
    "lfm2": lfm2.build,
    "lfm2moe": lfm2.build,
    "llama": llama.build,
    "llama4": llama4.build,
    "mamba2": mamba2.build,
    "maple": mellum.build_maple,
    "mellum": mellum.build_mellum,
    "minicpm": minicpm.build,
    "mistral3": mistral3.build,
    "mistral4": deepseek2.build,
    "nanbeige": nanbeige.build,
    "nemotron_h": nemotron_h.build,
    "nemotron_h_moe": nemotron_h.build,
    "olmo2": olmo2.build,
    "olmoe": olmoe.build,
    "phi2": phi.build_phi2,
    "phi3": phi.build_phi3,
    "phimoe": phi.build_phimoe,
    "qwen2": qwen.build_qwen2,
    "qwen2vl": qwen.build_qwen2,
    "qwen3": qwen.build_qwen3,
    "qwen35": qwen35.build,
    "qwen35moe": qwen35.build,
    "qwen3moe": qwen.build_qwen3,
    "qwen3next": qwen35.build,
    "qwen3vl": qwen.build_qwen3,
    "qwen3vlmoe": qwen.build_qwen3,
    "seed_oss": seed_oss.build,
    "smollm3": smollm3.build,
    "spark2_5": spark.build,
    "starcoder": starcoder.build_starcoder,
    "starcoder2": starcoder.build_starcoder2,
}
# Of models that read a text in both directions: they make embeddings and cannot continue it.
ENCODERS: dict[str, Build] = {
    "bert": bert.build_bert,
    "gemma-embedding": gemma.build_embedding,
    "nomic-bert": bert.build_nomic_bert,
}


def architecture(file: GGUFFile) -> Build:
    """The builder for a file; raises UnsupportedModel naming the unknown architecture or key."""
    name = file.string("general.architecture")
    build = builder_of(name)
    if name in ARCHITECTURES and is_encoder(file):
        if name in WITHOUT_ATTENTION:
            raise refusal(key_of(file))
        return lambda file, weights, context: in_both_directions(
            build(file, weights, context), key_of(file)
        )
    if name in ENCODERS and not is_encoder(file):
        raise UnsupportedModel(
            f"The key '{key_of(file)}' says that the model reads a text from its beginning on, which "
            f"this version does not support for {name} models.",
            "Choose another model.",
        )
    return build


def is_encoder(file: GGUFFile) -> bool:
    """Whether the model reads a text in both directions, by its key or else its architecture.

    Raises ModelFileError for a key that is neither true nor false.
    """
    found = file.metadata.get(key_of(file), file.string("general.architecture") not in ENCODERS)
    if not isinstance(found, bool):
        raise ModelFileError(
            f"The key '{key_of(file)}' is {found!r:.60}; it must be true or false.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    return not found


def builder_of(name: str) -> Build:
    """The builder of an architecture; raises UnsupportedModel for an unknown one."""
    build = (ARCHITECTURES | ENCODERS).get(name)
    if build is None:
        raise _unknown(name)
    return build


def _unknown(name: str) -> UnsupportedModel:
    """The error of an architecture that is not supported, with the nearest that is."""
    near = nearest(name, ARCHITECTURES | ENCODERS)
    return UnsupportedModel(
        f"The file is a {name!r} model, an architecture this version cannot run.",
        f"The nearest family that runs is {title(near)}; choose one of these."
        if near
        else "Choose a model of another family, such as Llama, Qwen or Gemma.",
        Fault(FaultKind.ARCHITECTURE, name, nearest=title(near) if near else ""),
    )
