"""Number formats that do not go together, or do not hold the numbers."""
