"""How single kinds of operators run on tensors without memory, as the hardware would run them."""
