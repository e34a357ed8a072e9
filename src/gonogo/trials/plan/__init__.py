"""Which strategy fits a model on given accelerators, and is the fastest that does: rehearsed, not guessed."""
