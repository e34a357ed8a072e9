"""Failures that are the program's own."""
