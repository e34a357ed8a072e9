"""A language model reads the evidence of a failure, and what it says is checked: ``gonogo diagnose --reader``."""
