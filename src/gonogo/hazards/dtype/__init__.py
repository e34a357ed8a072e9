"""Dtypes that don't match, or can't hold the values."""
