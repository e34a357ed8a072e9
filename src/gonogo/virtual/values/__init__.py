"""Tracks known values: small tensors carry real values, and for the others assumptions are recorded."""
