"""Front end: conversations to prompts, text to tokens, generated tokens to text; constraints."""
