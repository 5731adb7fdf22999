"""JSON schemas compiled to grammars: every keyword is enforced, is an annotation, or is refused."""
