"""What the program has allocated, and what PyTorch's caching allocator reserves for it."""
