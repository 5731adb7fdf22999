"""Constrained output: grammars, compiled for a vocabulary, and the tokens that they allow."""
