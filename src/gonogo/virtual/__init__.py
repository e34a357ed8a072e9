"""Runs inside a torch process that sees virtual accelerators; records facts, and knows nothing of hazards."""
