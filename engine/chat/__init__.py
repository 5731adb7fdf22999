"""Chat templates: conversation to prompt, in a metered Jinja sandbox."""
