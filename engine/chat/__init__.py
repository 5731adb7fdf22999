"""Chat templates: render a conversation to a prompt in a Jinja sandbox with resource limits."""
