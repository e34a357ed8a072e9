"""A torch process that believes it has accelerators: records facts, knows nothing of hazards."""
