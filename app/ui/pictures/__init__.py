"""Pictures of messages: thumbnails in the transcript, and the viewer."""
