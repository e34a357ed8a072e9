"""``gonogo diagnose``: logs in, findings out, the root cause first."""
