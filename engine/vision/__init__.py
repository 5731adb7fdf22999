"""Pictures: files to pixels, and encoders from pixels to rows for a text model."""
