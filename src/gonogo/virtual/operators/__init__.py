"""How specific kinds of operators run on virtual tensors, choosing the kernels that the hardware would use."""
