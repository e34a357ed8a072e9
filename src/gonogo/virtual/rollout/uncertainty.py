"""How far what is assumed of a rollout engine's memory may be off; without torch, for those who reckon with it."""

from __future__ import annotations

CONTEXT_UNCERTAINTY_BYTES = 512 << 20
"""Context and communicators of the real device take so much more or less than is assumed."""
PEAK_UNCERTAINTY = 0.3
"""The same of the activations that vLLM measures, as a share."""
MAX_CUDA_GRAPH_BYTES = 3 << 29
"""CUDA graphs, of the logs that were read."""
BLOCK = 16
"""Tokens in a block of the cache."""
