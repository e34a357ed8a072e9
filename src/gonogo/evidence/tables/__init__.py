"""Facts about releases, config keys, machines and presets: tables with sources, loaded on demand."""

from __future__ import annotations

from pathlib import Path

TABLES = Path(__file__).parent
"""The folder of the tables; the code that reads a table documents its rows."""
