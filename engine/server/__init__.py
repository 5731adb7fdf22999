"""Local HTTP server: OpenAI's, Anthropic's, llama.cpp's and Ollama's APIs over one engine."""
