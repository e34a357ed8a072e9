"""Checkpoints: written, read, and across world sizes."""
