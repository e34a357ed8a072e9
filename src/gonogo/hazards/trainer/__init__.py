"""Hazards of programs that subclass or call transformers' Trainer."""
