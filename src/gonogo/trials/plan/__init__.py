"""``gonogo plan``: which strategy fits a model on given accelerators and is the fastest: rehearsed, not guessed."""
