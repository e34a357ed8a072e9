"""What generation takes beside a strategy: the engine, its layouts, the batches of a step."""
