"""What configs mean: DeepSpeed's, accelerate's, training arguments, a model's."""
