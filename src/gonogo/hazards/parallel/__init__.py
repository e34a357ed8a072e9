"""Tensor, pipeline, sequence, context and expert parallelism; Megatron, Transformer Engine, torchtitan."""
