"""Engines elsewhere: servers with OpenAI's routes, as async generators of deltas; no Qt."""
