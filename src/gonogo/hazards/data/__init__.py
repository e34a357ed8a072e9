"""Hazards of the data: what reaches the collator and the embedding."""
