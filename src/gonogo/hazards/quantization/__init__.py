"""Models whose weights are quantised."""
