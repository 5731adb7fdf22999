"""Model library core: installed models, offers to download, settings of one model."""
