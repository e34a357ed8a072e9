"""``python -m gonogo.virtual PLAN``: one rank's worker process. Started by ``gonogo.rehearse``, not by hand."""

from __future__ import annotations

import os
import sys

from gonogo.virtual.garbage import collect_seldom

if __name__ == "__main__":
    # No real accelerator may be touched, whatever this machine has: hidden while torch is imported. What the program
    # itself is told stands in the environment again before it runs.
    _visible = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")}
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["ASCEND_RT_VISIBLE_DEVICES"] = ""
    # Nor may torch load what others have installed for their accelerators (torch_npu enters CANN).
    _visible["TORCH_DEVICE_BACKEND_AUTOLOAD"] = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    collect_seldom()
    from gonogo.virtual.worker import main

    for _name, _value in _visible.items():
        if _value is None:
            os.environ.pop(_name, None)
        else:
            os.environ[_name] = _value
    sys.argv[0] = "gonogo-worker"
    main(sys.argv[1])
