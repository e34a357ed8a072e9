"""Followed without being changed: torch's training calls, DeepSpeed's engine, transformers' Trainer."""
