"""What the wheel has in the place of the hazards' pages: all of them as one file, checked, which is read faster."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PagesHook(BuildHookInterface):
    """Makes ``gonogo/hazards/pages.msgpack``. An editable install has none: it reads the pages themselves."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the file beside the build, so that the checkout stays without one."""
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root, "src")))
        import msgspec

        from gonogo.hazards.pack import SHIPPED, make

        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name, SHIPPED.name)
        file.write_bytes(msgspec.msgpack.encode(make()))
        build_data["force_include"][str(file)] = f"gonogo/hazards/{SHIPPED.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made: the wheel has it."""
        if version != "editable":
            self._folder.cleanup()
