"""The commands: options, exit status, progress. Each parses, calls one function, renders; nothing heavy is imported."""
