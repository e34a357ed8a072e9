"""Ray without its daemons: the processes that it would start run as threads of this one, one at a time."""
