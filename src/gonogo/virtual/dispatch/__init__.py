"""The properties of operators: schema, devices, views, and the checks that real kernels make."""
