"""Model loading: preflight checks, memory plan, weights, kernel self-check."""
