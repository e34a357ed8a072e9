"""Chooses which batches of a pass are read and run, and accounts for those that are left out."""
