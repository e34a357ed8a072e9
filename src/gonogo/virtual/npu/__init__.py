"""Ascend NPUs: ``torch_npu`` for a process that has neither an NPU nor CANN.

``facade.py`` installs everything; ``api.py`` builds the module ``torch.npu``; ``package.py`` makes ``torch_npu`` and
its submodules importable; ``operators.py`` defines ``torch.ops.npu``; ``attention.py`` dispatches PyTorch's own
attention as torch_npu does; ``transfer.py`` is ``torch_npu.contrib.transfer_to_npu``.

Based on the Python code of torch_npu 2.6.0 and 2.13.0, and the C++ code of Ascend/pytorch and Ascend/op-plugin.
"""
