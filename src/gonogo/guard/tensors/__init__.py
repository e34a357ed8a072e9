"""Inspects where a model's tensors are and whether they are finite, mostly after something went wrong."""
