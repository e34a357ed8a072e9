"""Of this, the function."""
