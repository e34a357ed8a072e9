"""Hazards of what is installed: drivers, toolkits, compiled extensions and package versions."""
