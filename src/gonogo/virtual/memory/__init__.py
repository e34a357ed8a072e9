"""What lies where, and what PyTorch's caching allocator reserves for it."""
