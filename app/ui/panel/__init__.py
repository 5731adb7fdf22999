"""The panel of a chat: its model, instructions, sampling, format and adapters in one place."""
