"""Rehearses a copy of the run with other settings, alone (``--set``) or beside the run itself (``--also``)."""
