"""Shared by all parts of the guard in a rank: state, internal errors, frames, and memory readings."""
