"""Facts about the evidence that several hazards need, and how they word them."""
