"""``gonogo diagnose``: reads logs and reports findings, the root cause first."""
