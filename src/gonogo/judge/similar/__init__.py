"""Finds public threads that look like a log without a certain cause."""
