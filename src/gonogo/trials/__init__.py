"""The commands that rehearse again and again: which strategy fits, which release broke it."""
