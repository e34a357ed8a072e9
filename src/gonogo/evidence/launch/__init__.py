"""Launch commands as evidence: the command, options of its launcher and program, and the configs that it names."""
