"""Clues: facts about a failure, combined with each other, the run's settings, its environment and other ranks."""
