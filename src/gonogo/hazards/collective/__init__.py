"""Ranks that wait for each other, or cannot reach each other."""
