"""``gonogo mcp``: the commands as tools for coding agents, by the Model Context Protocol."""
