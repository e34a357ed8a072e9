"""Write the table: ``python -m scripts.deepspeed_keys FOLDER...``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path

from packaging.version import Version

from scripts.deepspeed_keys.release import Release
from scripts.deepspeed_keys.table import table_of

TABLE = Path(__file__).parents[2] / "src/gonogo/evidence/tables/deepspeed_keys.json"


def installed() -> Release:
    """The DeepSpeed of this Python, found without importing it."""
    spec = importlib.util.find_spec("deepspeed")
    if spec is None or spec.origin is None:
        raise SystemExit("DeepSpeed is not installed: pip install deepspeed")
    return Release(Path(spec.origin).parent, importlib.metadata.version("deepspeed"))


def main(folders: list[str]) -> None:
    """Read every release and write what they know."""
    releases = [Release.unpacked(Path(folder)) for folder in folders]
    releases = sorted([*releases, installed()], key=lambda release: Version(release.version))
    TABLE.write_text(json.dumps(table_of(releases), separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{TABLE}: {len(releases)} releases, {TABLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
