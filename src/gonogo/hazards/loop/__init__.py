"""Hazards of training loops that a script writes itself."""
