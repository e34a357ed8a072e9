"""Configs: DeepSpeed's, accelerate's, training arguments, a model's."""
