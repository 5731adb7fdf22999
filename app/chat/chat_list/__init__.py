"""The list of chats: folders, copies, titles, and what is deleted."""
