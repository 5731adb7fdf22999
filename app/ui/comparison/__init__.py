"""The card that compares two answers: what each of them is written with."""
