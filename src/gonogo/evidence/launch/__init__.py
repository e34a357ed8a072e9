"""A launch as evidence: the command, its launcher's and its program's options, the configs that it names."""
