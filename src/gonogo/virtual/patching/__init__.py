"""Patching other packages, immediately or when they are imported, and undoing it."""
