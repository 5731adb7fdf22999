"""Model families: one page for each wires the parts of its layers from a GGUF file."""
