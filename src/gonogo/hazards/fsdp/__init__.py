"""PyTorch's FullyShardedDataParallel, and how accelerate and transformers set it up."""
