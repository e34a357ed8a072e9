"""What a program looks for, and what of it is not there."""
