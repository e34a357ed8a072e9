"""Layers of flash-attn."""
