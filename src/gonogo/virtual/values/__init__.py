"""What is known of values: small tensors carry real ones, for the rest an assumption goes on record."""
