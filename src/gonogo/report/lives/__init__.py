"""What a report shows of a run's life."""
