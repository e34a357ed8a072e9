"""tensordict's ``consolidate``, which copies all tensors into one storage before they are sent to another process.

One storage would be known or unknown as a whole: token ids and masks would lose what is known of them beside scores.
The copy keeps each tensor in a storage of its own; together they are as large.
"""

from __future__ import annotations

from typing import Any

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches


def install(patches: Patches) -> None:
    """Replace it once tensordict is imported."""

    def replace(module: Any) -> None:
        original = module.TensorDictBase.consolidate

        def consolidate(self: Any, filename: Any = None, **options: Any) -> Any:
            if filename is not None or options.get("inplace") or options.get("return_early"):
                return original(self, filename, **options)
            return self.clone() if options.get("device") is None else self.to(options["device"])

        patches.set(module.TensorDictBase, "consolidate", consolidate)

    patches.on_undo(after_import("tensordict.base", replace))
