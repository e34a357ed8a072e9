"""Clues: facts of a failure joined with each other, the run's settings, its environment and other ranks."""
