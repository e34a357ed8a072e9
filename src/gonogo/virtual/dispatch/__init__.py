"""What an operator takes and gives: schema, devices, views, and what real kernels refuse."""
