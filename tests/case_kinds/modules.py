"""Modules and packages: where Python looks for them, and imports that lead back to themselves."""

from __future__ import annotations

from case_kinds.case import FAULTY, PLAIN, RANK, Case

_OFF_PATH = "module-off-python-path"
_LIB = {"lib/__init__.py": "", "lib/rows.py": "rows = [1]\n"}
_USES_LIB = "import torch\nfrom lib.rows import rows\n\nprint(torch.tensor(rows))\n"
_FAULTY_LIB = {"lib/__init__.py": "", "lib/start.py": f"import torch\n\n\ndef start():\n    {FAULTY.splitlines()[2]}\n"}
_CALLS_LIB = "from lib.start import start\n\nstart()\n"

CASES = (
    # A module that lies beside the launch, where Python doesn't look.
    Case(
        "beside the launch",
        "deepspeed-one-machine",
        "NO-GO",
        "deepspeed sets PYTHONPATH only for several machines (launcher/runner.py); sys.path[0] is tools/",
        "deepspeed --num_gpus 2 tools/train.py",
        {**_LIB, "tools/train.py": _USES_LIB},
        _OFF_PATH,
    ),
    Case(
        "beside the launch",
        "accelerate",
        "NO-GO",
        "accelerate's multi-GPU launch leaves PYTHONPATH alone",
        "accelerate launch --multi_gpu --num_processes 2 tools/train.py",
        {**_LIB, "tools/train.py": _USES_LIB},
        _OFF_PATH,
    ),
    Case(
        "beside the launch",
        "accelerate-deepspeed",
        "GO",
        "accelerate adds the working folder to PYTHONPATH for DeepSpeed (prepare_deepspeed_cmd_env)",
        "accelerate launch --use_deepspeed --num_processes 2 tools/train.py",
        {**_LIB, "tools/train.py": _USES_LIB},
    ),
    Case(
        "beside the launch",
        "inner-folder",
        "NO-GO",
        "lib/ itself is on the path: `lib` is not found in it",
        "bash run.sh",
        {
            **_LIB,
            "tools/train.py": _USES_LIB,
            "run.sh": "export PYTHONPATH=$PWD/lib\ntorchrun --nproc_per_node 2 tools/train.py\n",
        },
        _OFF_PATH,
    ),
    Case(
        "beside the launch",
        "caught",
        "GO",
        "the program does without it",
        "torchrun --nproc_per_node 2 tools/train.py",
        {
            **_LIB,
            "tools/train.py": "import torch\n\ntry:\n    from lib.rows import rows\nexcept ImportError:\n"
            "    rows = []\nprint(torch.tensor(rows))\n",
        },
    ),
    # A package of the project's own, launched from a folder below its root.
    Case(
        "own package",
        "src-layout",
        "NO-GO",
        "setup.py says that packages lie in src/: pkg.train is src/pkg/train.py",
        "bash scripts/run.sh",
        {
            "setup.py": 'from setuptools import find_packages, setup\n\nsetup(name="pkg", version="0", '
            'package_dir={"": "src"}, packages=find_packages("src"))\n',
            "src/pkg/__init__.py": "",
            "src/pkg/train.py": FAULTY,
            "scripts/run.sh": 'cd "$(dirname "$0")"\ntorchrun --nproc_per_node 2 -m pkg.train\n',
        },
        RANK,
    ),
    Case(
        "own package",
        "setup-cfg",
        "NO-GO",
        "setup.cfg: where = lib",
        "bash scripts/run.sh",
        {
            "setup.cfg": "[metadata]\nname = pkg\nversion = 0\n[options]\npackage_dir =\n    = lib\npackages = find:\n"
            "[options.packages.find]\nwhere = lib\n",
            "setup.py": "from setuptools import setup\n\nsetup()\n",
            "lib/pkg/__init__.py": "",
            "lib/pkg/train.py": FAULTY,
            "scripts/run.sh": 'cd "$(dirname "$0")"\ntorchrun --nproc_per_node 2 -m pkg.train\n',
        },
        RANK,
    ),
    Case(
        "own package",
        "not-installed",
        "not GO",
        "no file says that it is installed: `pkg` is found only where something else puts it on the path",
        "bash scripts/run.sh",
        {
            "pkg/__init__.py": "",
            "pkg/train.py": PLAIN,
            "scripts/run.sh": 'cd "$(dirname "$0")"\ntorchrun --nproc_per_node 2 -m pkg.train\n',
        },
    ),
    Case(
        "own package",
        "nowhere",
        "not GO",
        "no module of that name is in the project: the program is not identified",
        "torchrun --nproc_per_node 2 -m elsewhere.train",
        {"train.py": PLAIN},
    ),
    # Modules that the program, or a script, puts on the path.
    Case(
        "off the path",
        "parents-of-a-path",
        "NO-GO",
        "Path(__file__).resolve().parents[1] is the root",
        "bash run.sh",
        {
            **_FAULTY_LIB,
            "run.sh": "cd trainer && torchrun --nproc_per_node 2 train.py\n",
            "trainer/train.py": "import sys\nfrom pathlib import Path\n\nROOT = Path(__file__).resolve().parents[1]\n"
            f"sys.path.insert(0, str(ROOT))\n{_CALLS_LIB}",
        },
        RANK,
    ),
    Case(
        "off the path",
        "dirname-twice",
        "NO-GO",
        "dirname of dirname of __file__ is the root",
        "bash run.sh",
        {
            **_FAULTY_LIB,
            "run.sh": "cd trainer && torchrun --nproc_per_node 2 train.py\n",
            "trainer/train.py": "import os\nimport sys\n\nsys.path.insert(0, os.path.dirname(os.path.dirname("
            f"os.path.abspath(__file__))))\n{_CALLS_LIB}",
        },
        RANK,
    ),
    Case(
        "off the path",
        "env",
        "NO-GO",
        "env sets the variable for the launch",
        "bash run.sh",
        {
            **_FAULTY_LIB,
            "run.sh": "cd trainer\nenv PYTHONPATH=.. torchrun --nproc_per_node 2 train.py\n",
            "trainer/train.py": _CALLS_LIB,
        },
        RANK,
    ),
    Case(
        "off the path",
        "set-a",
        "NO-GO",
        "set -a exports what env.sh assigns",
        "bash run.sh",
        {
            **_FAULTY_LIB,
            "env.sh": "PYTHONPATH=..\n",
            "trainer/train.py": _CALLS_LIB,
            "run.sh": "cd trainer\nset -a\nsource ../env.sh\nset +a\ntorchrun --nproc_per_node 2 train.py\n",
        },
        RANK,
    ),
    Case(
        "off the path",
        "not-exported",
        "not GO",
        "PYTHONPATH without export reaches no program where the shell had none: lib is not found",
        "bash run.sh",
        {**_LIB, "run.sh": "PYTHONPATH=.\ntorchrun --nproc_per_node 2 tools/train.py\n", "tools/train.py": _USES_LIB},
    ),
    # Imports that lead back to themselves.
    Case(
        "imports itself",
        "two-modules",
        "GO",
        "each takes the other's name when it is called, not when it is imported",
        "torchrun --nproc_per_node 2 train.py",
        {
            "pkg/__init__.py": "from .a import thing\n",
            "pkg/a.py": "from . import b\n\nthing = b.thing\n",
            "pkg/b.py": "from . import a\n\n\ndef thing(n):\n    make = a.thing\n    return make(n)\n",
            "train.py": "import torch\nfrom pkg import thing\n\nif torch.ones(1) is None:\n    thing(1).step()\n",
        },
    ),
    Case(
        "imports itself",
        "star-circle",
        "GO",
        "names of a star import that leads back are those defined so far",
        "torchrun --nproc_per_node 2 train.py",
        {
            "x.py": "from y import *\n\nleft = 1\n",
            "y.py": "from x import *\n\nright = 2\n",
            "train.py": "import torch\nimport x\n\ntorch.nn.Linear(x.left, x.right)(torch.ones(1, x.left))\n",
        },
    ),
    Case(
        "imports itself",
        "alias-of-itself",
        "GO",
        "`import pkg.core as core` in pkg/core.py is the module itself",
        "torchrun --nproc_per_node 2 train.py",
        {
            "pkg/__init__.py": "from . import core\n",
            "pkg/core.py": "import pkg.core as core\n\n\nclass Head:\n"
            "    pass\n\n\ndef make():\n    made = core.make if False else core.Head\n    return made()\n",
            "train.py": "import torch\nfrom pkg.core import core\n\nprint(torch.ones(1), core.core.make())\n",
        },
    ),
)
