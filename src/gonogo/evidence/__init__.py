"""The evidence that hazards look at: facts with their source, one file for each kind."""
