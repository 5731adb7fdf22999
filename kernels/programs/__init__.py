"""Programs: forward passes as lists of instructions, and what interprets them."""
