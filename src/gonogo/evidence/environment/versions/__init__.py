"""Readers of files that state versions, one module for each format."""
