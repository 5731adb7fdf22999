"""What the user sends: drafts, attachments, waiting messages, and whether they fit."""
