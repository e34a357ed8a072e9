"""Sends the guard's report to the trackers that the training reports to (W&B, MLflow, TensorBoard, SwanLab)."""
