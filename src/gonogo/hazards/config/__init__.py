"""DeepSpeed's JSON against the launch and the training arguments."""
