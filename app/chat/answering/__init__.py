"""Answers: requested, compared, continued, recorded, and the model that writes them."""
