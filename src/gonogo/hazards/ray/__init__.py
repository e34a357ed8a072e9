"""Hazards of runs on Ray: clusters, resources, versions."""
