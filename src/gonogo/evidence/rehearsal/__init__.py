"""A rehearsal's record as evidence, and facts derived from it."""
