"""Operators of flash-attn that are written in Triton."""
