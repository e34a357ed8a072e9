"""Checkpoints: saving, loading, and resuming with another world size."""
