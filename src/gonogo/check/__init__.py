"""``gonogo check``: a run's files in, findings out; fixes carried out."""
