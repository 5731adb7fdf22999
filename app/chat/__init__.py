"""Chat core: the controller, conversations, answers, adapters and snapshots of a chat."""
