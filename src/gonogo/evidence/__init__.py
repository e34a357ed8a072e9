"""What hazards look at: facts with their provenance, one file a kind of evidence."""
