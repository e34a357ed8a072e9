"""``gonogo diagnose --reader``: a language model reads the evidence of a failure, and its claims are verified."""
