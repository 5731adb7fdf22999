"""Answer options: the card with sampling and format of one chat, and what shows them in it."""
