"""Tracks a run across save and resume: what state is saved, and what the resumed run has of it."""
