"""Where a model's tensors are and whether they are finite: asked when something is wrong."""
