"""What all hazards find in one kind of evidence, and what several kinds say together as one list."""
