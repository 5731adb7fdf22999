"""Message composer: its field, chips, and the lists and cards that open from it."""
