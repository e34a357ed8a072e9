"""Ascend NPUs: ``torch_npu`` for a process that has neither an NPU nor CANN.

``facade.py`` puts everything in place; ``api.py`` makes the module ``torch.npu``; ``package.py`` lets ``import
torch_npu`` and its submodules be found; ``operators.py`` defines ``torch.ops.npu``; ``attention.py`` routes PyTorch's
own attention as torch_npu does; ``transfer.py`` is ``torch_npu.contrib.transfer_to_npu``.

Follows the Python of torch_npu 2.6.0 and 2.13.0, and the C++ of Ascend/pytorch and Ascend/op-plugin.
"""
