"""What is loaded in the engine for chats: the model, its draft model, adapters, cached contexts."""
