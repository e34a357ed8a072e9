"""What several hazards ask of the evidence, and say of it."""
