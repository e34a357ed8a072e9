"""Hazards of the data on its way to the collator and the embedding."""
