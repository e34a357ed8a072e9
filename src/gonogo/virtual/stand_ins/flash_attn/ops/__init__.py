"""Operators of flash-attn."""
