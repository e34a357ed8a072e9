"""A run's life followed: what of its state is saved, and what of it the second life holds."""
