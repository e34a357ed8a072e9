"""The data model for a run's life in a report."""
