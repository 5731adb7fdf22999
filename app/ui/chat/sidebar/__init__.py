"""Sidebar: the list of chats and folders, the archive and the trash."""
