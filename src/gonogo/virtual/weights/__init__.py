"""Weights without weights: see readers.py for what loads, and saving.py for what saves."""
