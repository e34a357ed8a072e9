"""What a report says of a run's life: the data model."""
