"""The commands. Each parses its options, calls one function and renders the result; nothing heavy is imported."""
