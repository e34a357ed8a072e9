"""Which batches of a pass are read and run, and what those that are left out would have shown."""
