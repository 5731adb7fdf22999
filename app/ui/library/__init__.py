"""The screen of models: installed files, downloads, catalog, hub search."""
