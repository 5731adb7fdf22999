"""Collections of documents in the window: their page, and the section of a chat's panel."""
