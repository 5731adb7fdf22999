"""Tools in chats: those that are offered, consent, and calls carried out while an answer waits."""
