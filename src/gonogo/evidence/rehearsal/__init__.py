"""A rehearsal's record as evidence, and what follows from it."""
