"""Ranks started on virtual accelerators, and their records put together."""
