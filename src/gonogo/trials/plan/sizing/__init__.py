"""The resources for generation: the engine, its layouts, the batches of a step."""
