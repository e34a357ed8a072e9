"""Turns what the hazards find in one kind of evidence, and in several kinds together, into one list."""
