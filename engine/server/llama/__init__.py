"""Routes of llama.cpp's server that have no counterpart in OpenAI's API."""
