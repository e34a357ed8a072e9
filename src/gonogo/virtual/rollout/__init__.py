"""Stand-ins for rollout engines: vLLM in the trainer's process, and servers on separate GPUs."""
