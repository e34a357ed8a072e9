"""Preference optimization, reinforcement learning and distillation: what ``gonogo plan --task`` supports."""
