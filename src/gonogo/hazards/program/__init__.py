"""Failures of the user's program itself."""
