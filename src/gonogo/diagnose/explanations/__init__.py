"""Why an exception was raised, and what to change, where no hazard explains it."""
