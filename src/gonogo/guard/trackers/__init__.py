"""Where a training reports to already (W&B, MLflow, TensorBoard, SwanLab), the guard hands its report to as well."""
