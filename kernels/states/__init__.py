"""States: what layers remember of the tokens that were processed."""
