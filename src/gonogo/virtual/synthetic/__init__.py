"""Rehearsals without a script or data: a plain training program, with a batch built from the model itself."""
