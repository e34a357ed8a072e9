"""What a report says first: the verdict and what it is of, why, its figures, and what to type next."""
