"""Hazards of the engine that generates for a trainer (vLLM, SGLang): memory, lengths, servers, weight sync."""
