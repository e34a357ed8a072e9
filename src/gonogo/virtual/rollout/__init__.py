"""The engine that rolls out, stood in for: vLLM in the trainer's process, and as a server on GPUs of its own."""
