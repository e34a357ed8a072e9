"""What breaks when ZeRO-3 partitions the parameters."""
