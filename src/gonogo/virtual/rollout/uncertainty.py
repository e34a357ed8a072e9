"""Error bounds of the assumptions about a rollout engine's memory; free of torch imports, for estimates without
it."""

from __future__ import annotations

CONTEXT_UNCERTAINTY_BYTES = 512 << 20
"""Error of the assumed size of CUDA context and communicators on the real device."""
PEAK_UNCERTAINTY = 0.3
"""Relative error of the activations that vLLM's profiling measures."""
MAX_CUDA_GRAPH_BYTES = 3 << 29
"""Largest size of CUDA graphs found in logs."""
KV_BLOCK_TOKENS = 16
"""Tokens per block of the KV cache."""
