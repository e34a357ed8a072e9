"""Observes, without changing them, torch's training calls, DeepSpeed's engine and transformers' Trainer."""
