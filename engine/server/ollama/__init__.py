"""Ollama's API."""

from engine.server.ollama import chat, embed, models

__all__ = ["chat", "embed", "models"]
