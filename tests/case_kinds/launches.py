"""Launches: a config of accelerate, a folder to start from, folders that a script makes, files that it sources."""

from __future__ import annotations

from case_kinds.case import FAULTY, PLAIN, RANK, Case

BOTH_DTYPES = '{"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": true}, "bf16": {"enabled": true}}'
DTYPES = "ds-fp16-and-bf16-enabled"
ENGINE = 'import deepspeed\n\ndeepspeed.initialize(model=build(), model_parameters=p, config="ds.json")\n'
START = "torchrun --nproc_per_node 2 train.py\n"
_ACCELERATE = "accelerate-config-file-not-found"
_ROOT = {"src/app/train.py": ENGINE, "src/app/ds.json": BOTH_DTYPES}
_SOURCED = "launch-sourced-file-not-found"
_FOLDER = "launch-folder-not-found"

CASES = (
    # A config of accelerate that the repository doesn't hold.
    Case(
        "accelerate config",
        "other-ending",
        "NO-GO",
        "conf/ has zero3.yaml, and zero3.yml is asked for",
        "accelerate launch --config_file=conf/zero3.yml train.py",
        {"train.py": PLAIN, "conf/zero3.yaml": "distributed_type: MULTI_GPU\nnum_processes: 2\n"},
        _ACCELERATE,
    ),
    Case(
        "accelerate config",
        "after-cd",
        "NO-GO",
        "the path counts from sft/, and configs/ lies beside it, not in it",
        "bash run.sh",
        {
            "run.sh": 'CONFIG=configs/fsdp.yaml\ncd sft\naccelerate launch --config_file "${CONFIG}" train.py\n',
            "sft/train.py": PLAIN,
            "configs/fsdp.yaml": "distributed_type: FSDP\nnum_processes: 2\n",
        },
        _ACCELERATE,
    ),
    Case(
        "accelerate config",
        "as-module",
        "NO-GO",
        "python -m accelerate.commands.launch is accelerate launch",
        "python -m accelerate.commands.launch --config_file conf/none.yaml train.py",
        {"train.py": PLAIN},
        _ACCELERATE,
    ),
    Case(
        "accelerate config",
        "outside-the-project",
        "not NO-GO",
        "/data/shared may be on the machine that trains",
        "accelerate launch --config_file /data/shared/acc.yaml train.py",
        {"train.py": PLAIN},
    ),
    # A script that works from the repository's root, and from nowhere else.
    Case(
        "cd from root",
        "two-deep",
        "NO-GO",
        "examples/sft is below the root: the script is started there",
        ".",
        {
            "scripts/train/run.sh": "cd examples/sft\ndeepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n",
            "examples/sft/train.py": ENGINE,
            "examples/sft/ds.json": BOTH_DTYPES,
        },
        DTYPES,
    ),
    Case(
        "cd from root",
        "pushd",
        "NO-GO",
        "pushd changes the folder as cd does",
        ".",
        {
            "scripts/run.sh": "pushd src/app\ndeepspeed --num_gpus 2 train.py --deepspeed_config ds.json\npopd\n",
            **_ROOT,
        },
        DTYPES,
    ),
    Case(
        "cd from root",
        "subshell",
        "NO-GO",
        "in ( … ) cd holds to its end, and the launch is within",
        ".",
        {"scripts/run.sh": "(cd src/app; deepspeed --num_gpus 2 train.py --deepspeed_config ds.json)\n", **_ROOT},
        DTYPES,
    ),
    Case(
        "cd from root",
        "and-then",
        "NO-GO",
        "the second script goes back to the root by ../..",
        ".",
        {
            "scripts/run.sh": "cd src/app && torchrun --nproc_per_node 2 train.py && cd ../..\n",
            "src/app/train.py": FAULTY,
        },
        RANK,
    ),
    # Folders that a script makes, enters and leaves.
    Case(
        "made and left",
        "pushd-popd",
        "NO-GO",
        "after popd the folder is the first one, where train.py lies",
        "bash run.sh",
        {"run.sh": "mkdir -p logs && pushd logs && popd\ntorchrun --nproc_per_node 2 train.py\n", "train.py": FAULTY},
        RANK,
    ),
    Case(
        "made and left",
        "cd-minus",
        "NO-GO",
        "cd - goes back to where it was",
        "bash run.sh",
        {
            "run.sh": "mkdir -p out/run1\ncd out/run1\nln -s /data/x x\ncd -\ntorchrun --nproc_per_node 2 train.py\n",
            "train.py": FAULTY,
        },
        RANK,
    ),
    Case(
        "made and left",
        "home",
        "NO-GO",
        "`here` was kept before the new folder was entered",
        "bash run.sh",
        {
            "run.sh": 'here=$(pwd)\nmkdir work_$$; cd work_$$\ncd "$here"\ntorchrun --nproc_per_node 2 train.py\n',
            "train.py": FAULTY,
        },
        RANK,
    ),
    Case(
        "made and left",
        "overrides",
        "NO-GO",
        "`+data=conf/a.yaml` is an override, not a file of that name",
        "torchrun --nproc_per_node 2 train.py +data=conf/a.yaml trainer.config=conf/b.yaml",
        {"train.py": FAULTY, "conf/a.yaml": "x: 1\n", "conf/b.yaml": "x: 1\n"},
        RANK,
    ),
    # A script sources a file that is not there.
    Case(
        "sourced",
        "errexit",
        "NO-GO",
        "set -e: the script ends at the file that is not there",
        "bash run.sh",
        {"run.sh": "set -e\nsource ./env.sh\n" + START, "train.py": PLAIN},
        _SOURCED,
    ),
    Case(
        "sourced",
        "value-of-it",
        "not GO",
        'nothing else sets the port, and DeepSpeed"s launcher wants a number',
        "bash scripts/run.sh",
        {
            "scripts/run.sh": "source ./env.sh\ndeepspeed --master_port ${PORT_OF_RUN} train.py\n",
            "scripts/env.sh": "PORT_OF_RUN=29600\n",
            "train.py": PLAIN,
        },
    ),
    Case(
        "sourced",
        "nothing-of-it",
        "GO",
        "bash says that it is not there and goes on, and nothing asks for what it might set",
        "bash run.sh",
        {"run.sh": "source ./env.sh\n" + START, "train.py": PLAIN},
    ),
    Case(
        "sourced",
        "written-before",
        "GO",
        "the script writes the file first",
        "bash run.sh",
        {"run.sh": "set -e\necho 'export LR=1' > env.sh\nsource ./env.sh\n" + START, "train.py": PLAIN},
    ),
    Case(
        "sourced",
        "asked-for",
        "GO",
        "it is sourced where it is there only, or its failure is asked for",
        "bash run.sh",
        {
            "run.sh": "set -e\n[ -f env.sh ] && source env.sh\nif [ -f more.sh ]; then . ./more.sh; fi\n"
            "source last.sh || true\n" + START,
            "train.py": PLAIN,
        },
    ),
    Case(
        "sourced",
        "dot-in-sh",
        "NO-GO",
        "POSIX: a shell ends where `.` finds no file, with or without set -e",
        "sh run.sh",
        {"run.sh": ". ./env.sh\n" + START, "train.py": PLAIN},
        _SOURCED,
    ),
    Case(
        "sourced",
        "of-the-cluster",
        "not NO-GO",
        "the folder may be there where the run is",
        "bash run.sh",
        {"run.sh": "set -e\nsource /data/team/env.sh\n" + START, "train.py": PLAIN},
    ),
    Case(
        "sourced",
        "made-by-a-program",
        "not NO-GO",
        "what make_env.py writes is not known",
        "bash run.sh",
        {"run.sh": "set -e\npython make_env.py\nsource ./env.sh\n" + START, "make_env.py": PLAIN, "train.py": PLAIN},
    ),
    # A script changes into a folder that is not there.
    Case(
        "cd",
        "program-not-here",
        "NO-GO",
        "neither trainer/ nor train.py is where the command is typed",
        "bash run.sh",
        {"run.sh": "cd trainer\n" + START, "app/train.py": PLAIN},
        _FOLDER,
    ),
    Case(
        "cd",
        "program-here",
        "GO",
        "cd fails, bash goes on, and train.py is there",
        "bash run.sh",
        {"run.sh": "cd trainer\n" + START, "train.py": PLAIN},
    ),
    Case(
        "cd",
        "with-and",
        "NO-GO",
        "cd fails, and nothing is started",
        "bash run.sh",
        {"run.sh": "cd trainer && " + START, "train.py": PLAIN},
        _FOLDER,
    ),
    Case(
        "cd",
        "errexit",
        "NO-GO",
        "set -e: the script ends at cd",
        "bash run.sh",
        {"run.sh": "set -euo pipefail\ncd trainer\n" + START, "train.py": PLAIN},
        _FOLDER,
    ),
    Case(
        "cd",
        "or-exit",
        "NO-GO",
        "the script ends where cd fails",
        "bash run.sh",
        {"run.sh": "cd trainer || exit 1\n" + START, "train.py": PLAIN},
        _FOLDER,
    ),
    Case(
        "cd",
        "cloned",
        "not NO-GO",
        "git clone makes the folder",
        "bash run.sh",
        {"run.sh": "git clone https://github.com/some/trainer\ncd trainer\n" + START},
    ),
    Case(
        "cd",
        "of-the-author",
        "CANNOT-TELL",
        'the folder of another machine: what is started there can"t be told',
        "bash run.sh",
        {"run.sh": "cd /home/author/project\n" + START, "app/train.py": PLAIN},
    ),
    Case(
        "cd",
        "of-the-author-files-here",
        "not NO-GO",
        "if the folder is not there, bash goes on in this one, where train.py is",
        "bash run.sh",
        {"run.sh": "cd /home/author/project\n" + START, "train.py": PLAIN},
    ),
    Case(
        "cd",
        "started-below",
        "NO-GO",
        "`cd ..` and then into app/: from the root that is another folder",
        "bash scripts/run.sh",
        {"scripts/run.sh": "cd ../app\n" + START, "app/train.py": PLAIN},
        _FOLDER,
    ),
)
