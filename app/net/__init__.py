"""HTTP client and model hub API."""
