"""Hazards of models that see and hear: placeholders and features."""
