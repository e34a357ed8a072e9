"""Parameters that training does not update."""
