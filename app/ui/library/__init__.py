"""The model library screen: installed files, downloads, catalog and Hugging Face search."""
