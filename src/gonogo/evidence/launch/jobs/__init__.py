"""What job queues are given, as launches: each queue's own kind of file, and what they all come to."""
