"""What a run's ranks do on disk: how much its checkpoints take, and which paths they use at the same time."""
