"""``gonogo check``: reads a run's files, reports findings, applies fixes."""
