"""Hazards of the installation: drivers, toolkits, compiled extensions and package versions."""
