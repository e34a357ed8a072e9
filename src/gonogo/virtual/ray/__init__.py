"""Ray without its daemons: the processes that it would start are rehearsed as threads of this one, one at a time."""
