"""``gonogo mcp``: the commands as tools for coding agents, via the Model Context Protocol."""
