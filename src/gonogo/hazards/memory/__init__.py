"""GPU and host memory that runs out."""
