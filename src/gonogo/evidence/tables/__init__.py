"""What is known of releases, keys, machines and presets: tables with their sources, read when first asked for."""

from __future__ import annotations

from pathlib import Path

TABLES = Path(__file__).parent
"""The folder of the tables; what a row means is said where it is read."""
