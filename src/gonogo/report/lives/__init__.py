"""How reports show a run's lives: interruption, resumption, and what is made of its checkpoints."""
