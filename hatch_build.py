"""What a wheel has that a checkout builds while it is used: the hazards' pages, checked; an index of their cases;
the tables that explain exceptions."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuiltFiles(BuildHookInterface):
    """Builds these files beside the checkout, which stays without them; so does an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build them, and have the wheel include them. Raises SystemExit where there are no cases to build from."""
        if version == "editable":
            return
        if not Path(self.root, "tests", "hazards").is_dir():
            sys.exit("tests/hazards is not here: a wheel is built from a whole checkout, or from the sdist")
        sys.path.insert(0, str(Path(self.root, "src")))
        import msgspec

        from gonogo.diagnose.explanations.rule_table import RULES_FILE
        from gonogo.diagnose.explanations.topics import TOPICS_FILE
        from gonogo.hazards import build_cache, pack
        from gonogo.judge.similar import cases

        self._folder = tempfile.TemporaryDirectory()
        tables = [(build_cache.packed(file), build_cache.pack_toml(file)) for file in (RULES_FILE, TOPICS_FILE)]
        pages = msgspec.msgpack.encode(pack.build_pack())
        for file, data in ((pack.SHIPPED, pages), (cases.SHIPPED, cases.build_case_index()), *tables):
            built = Path(self._folder.name, file.name)
            built.write_bytes(data)
            build_data["force_include"][str(built)] = str(file.relative_to(Path(self.root, "src")))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was built: the wheel has it."""
        if version != "editable":
            self._folder.cleanup()
