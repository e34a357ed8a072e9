"""The guard of a live training run: what `gonogo run` adds to it, and how its records are evaluated."""
