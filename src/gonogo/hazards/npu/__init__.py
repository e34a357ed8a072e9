"""Ascend NPUs, CANN and torch_npu."""
