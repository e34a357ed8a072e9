"""The DeepSpeed JSON compared with the launch and the training arguments."""
