"""Parameters that training does not reach."""
