"""Inference for quantized GGUF models in this process: `Engine`, its messages, its errors.

This surface imports neither torch nor a model file reader, so a window can open before either.
"""

from engine.errors import (
    Cancelled,
    EngineError,
    ModelFileError,
    OutOfMemory,
    PromptTooLong,
    RequestError,
    TemplateError,
    UnsupportedModel,
)
from engine.library import (
    data_folder,
    find_model,
    installed_models,
    model_name,
    models_folder,
    starter_path,
)
from engine.messages import (
    Cancel,
    Command,
    Event,
    Failed,
    Finished,
    FinishReason,
    Generate,
    LoadModel,
    LoadProgress,
    ModelLoaded,
    ModelUnloaded,
    PromptProgress,
    Role,
    Sampling,
    Text,
    Turn,
    UnloadModel,
)
from engine.service import Engine

__all__ = [
    "Cancel",
    "Cancelled",
    "Command",
    "Engine",
    "EngineError",
    "Event",
    "Failed",
    "FinishReason",
    "Finished",
    "Generate",
    "LoadModel",
    "LoadProgress",
    "ModelFileError",
    "ModelLoaded",
    "ModelUnloaded",
    "OutOfMemory",
    "PromptProgress",
    "PromptTooLong",
    "RequestError",
    "Role",
    "Sampling",
    "TemplateError",
    "Text",
    "Turn",
    "UnloadModel",
    "UnsupportedModel",
    "data_folder",
    "find_model",
    "installed_models",
    "model_name",
    "models_folder",
    "starter_path",
]
