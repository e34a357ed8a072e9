"""What a launch script launches: the launcher, its program, the number of processes, the files and variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.launch.reading import launches_of_command, read_launches
from gonogo.evidence.source_file import SourceFile

EXAMPLES = Path(__file__).parents[2] / "examples"


def launches(folder: Path, text: str, name: str = "launch.sh", **files: str) -> tuple[Launch, ...]:
    for path, content in files.items():
        (folder / path.replace("__", ".")).write_text(content, encoding="utf-8")
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_launches(SourceFile.read(path))


def only(folder: Path, text: str, name: str = "launch.sh", **files: str) -> Launch:
    found = launches(folder, text, name, **files)
    assert len(found) == 1, [launch.place.text for launch in found]
    return found[0]


EXPECTED: dict[str, dict[str, Any]] = {
    "grpo_7b_colocated_weight_sync": {"launcher": "accelerate", "program": "grpo.py", "world": 8},
    "minicpmv_zero3_offload": {"launcher": "torchrun", "program": "finetune.py", "world": 8},
    "qwen_72b_zero3_offload": {"launcher": "deepspeed", "program": "finetune.py", "world": 8},
    "qwen_7b_device_map": {"launcher": "accelerate", "program": "finetune", "world": 8},
    "qwen_omni_audio_zero3": {"launcher": "torchrun", "program": "train.py", "world": 4},
    "slam_omni_dummy_loss": {"launcher": "deepspeed", "program": "train", "world": 8},
}


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*/launch*.sh")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_examples(script: Path) -> None:
    expected = EXPECTED[script.parent.name]
    (launch,) = read_launches(SourceFile.read(script))
    assert launch.launcher == expected["launcher"]
    assert str(launch.program.value).startswith(expected["program"])
    assert launch.world_size.value == expected["world"]
    assert launch.nodes.value == 1
    assert launch.deepspeed_config.value == "ds_config.json"
    assert launch.cwd == script.parent
    assert launch.cwd_known
    assert launch.options.complete
    assert launch.path_of(launch.deepspeed_config) == script.parent / "ds_config.json"


def test_a_typed_command(tmp_path: Path) -> None:
    (launch,) = launches_of_command(["deepspeed", "--num_gpus", "4", "train.py", "--deepspeed", "ds.json"], tmp_path)
    assert (launch.launcher, launch.world_size.value, launch.deepspeed_config.value) == ("deepspeed", 4, "ds.json")
    assert launch.cwd == tmp_path
    assert not launch.source.writable
    span = launch.deepspeed_config.span()
    assert span is not None
    assert span.path == "<command>"
    assert span.text == "deepspeed --num_gpus 4 train.py --deepspeed ds.json"


def test_a_typed_script_gets_its_arguments_and_variables(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text('torchrun --nproc_per_node ${N:-8} train.py --deepspeed "$1"\n')
    (launch,) = launches_of_command(["N=2", "bash", "run.sh", "zero2.json"], tmp_path)
    assert launch.world_size.value == 2
    assert launch.deepspeed_config.value == "zero2.json"
    assert launch.source.path.endswith("run.sh")


def test_a_typed_command_has_its_shells_variables(tmp_path: Path) -> None:
    """Without them ms-swift starts one process, and an engine of two GPUs would seem not to fit."""
    words = ["swift", "rlhf", "--rlhf_type", "grpo", "--model", "m"]
    (alone,) = launches_of_command(words, tmp_path)
    (two,) = launches_of_command(words, tmp_path, {"NPROC_PER_NODE": "2"})
    (own,) = launches_of_command(["NPROC_PER_NODE=4", *words], tmp_path, {"NPROC_PER_NODE": "2"})
    assert [one.world_size.value for one in (alone, two, own)] == [1, 2, 4]
    (tmp_path / "run.sh").write_text("swift sft --model m\n")
    (inside,) = launches_of_command(["bash", "run.sh"], tmp_path, {"NPROC_PER_NODE": "2"})
    assert inside.world_size.value == 2


def test_a_command_that_launches_nothing(tmp_path: Path) -> None:
    assert launches_of_command(["ls", "-l"], tmp_path) == ()
    assert launches(tmp_path, "echo hello\npip install torch\n") == ()


QWEN = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=$(python -c 'import torch; print(torch.cuda.device_count())')
NNODES=1
DS_CONFIG_PATH="finetune/ds_config_zero3.json"
while [[ "$1" != "" ]]; do
    case $1 in
        --deepspeed ) shift; DS_CONFIG_PATH=$1 ;;
        * ) exit 1 ;;
    esac
    shift
done
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \\
    --nnodes $NNODES \\
    --master_port 6001
"
torchrun $DISTRIBUTED_ARGS finetune.py \\
    --model_name_or_path Qwen/Qwen-7B \\
    --bf16 True \\
    --deepspeed ${DS_CONFIG_PATH}
"""

INTERNVL_SLURM = """set -x
PARTITION=${PARTITION:-"P"}
GPUS=${GPUS:-64}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NODES=$((GPUS / GPUS_PER_NODE))
SRUN_ARGS=${SRUN_ARGS:-""}
PER_DEVICE=${PER_DEVICE:-4}
GRADIENT_ACC=$((512 / PER_DEVICE / GPUS))
export PYTHONPATH="${PYTHONPATH}:$(pwd)"
OUT='work_dirs/x'
if [ ! -d "$OUT" ]; then
  mkdir -p "$OUT"
fi
srun -p ${PARTITION} \\
  --gres=gpu:${GPUS_PER_NODE} \\
  --nodes=${NODES} \\
  --ntasks=${GPUS} \\
  --ntasks-per-node=${GPUS_PER_NODE} \\
  --quotatype=reserved \\
  ${SRUN_ARGS} \\
  python -u internvl/train.py \\
  --gradient_accumulation_steps ${GRADIENT_ACC} \\
  --deepspeed "zero_stage1_config.json" \\
  2>&1 | tee -a "${OUT}/log.txt"
"""

ACCELERATE_SLURM = """#!/bin/bash
#SBATCH --job-name=multinode
#SBATCH --nodes=4                   # number of nodes
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:a100:4
#SBATCH --mem=500G
source activateEnvironment.sh
export GPUS_PER_NODE=4
head_node_ip=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export LAUNCHER="accelerate launch \\
    --num_processes $((SLURM_NNODES * GPUS_PER_NODE)) \\
    --num_machines $SLURM_NNODES \\
    --main_process_ip $head_node_ip \\
    --machine_rank \\$SLURM_PROCID \\
    "
export CMD="$LAUNCHER train.py --output_dir out"
srun CALL
"""

SRUN_TORCHRUN = """#!/bin/bash
#SBATCH -N 2
#SBATCH --gpus-per-node=8
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head=${nodes[0]}
ip=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address)
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node ${SLURM_GPUS_ON_NODE:-4} \\
  --rdzv_id $RANDOM --rdzv_endpoint $ip:29500 train.py --deepspeed ds.json
"""

TABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen": (QWEN, {"launcher": "torchrun", "world": None, "nodes": 1, "ds": "finetune/ds_config_zero3.json"}),
    "InternVL on slurm": (INTERNVL_SLURM, {"launcher": "srun", "world": 64, "nodes": 8, "per_node": 8}),
    "accelerate on slurm": (
        ACCELERATE_SLURM.replace("CALL", "$CMD"),
        {"launcher": "accelerate", "world": 16, "nodes": 4, "per_node": 4, "program": "train.py"},
    ),
    "accelerate on slurm in bash": (
        ACCELERATE_SLURM.replace("CALL", 'bash -c "$CMD"'),
        {"launcher": "accelerate", "world": 16, "nodes": 4, "per_node": 4, "program": "train.py"},
    ),
    "torchrun on slurm": (SRUN_TORCHRUN, {"launcher": "torchrun", "world": 16, "nodes": 2, "ds": "ds.json"}),
    "LLaVA": (
        "#!/bin/bash\n\ndeepspeed llava/train_mem.py \\\n    --deepspeed ./scripts/zero3.json \\\n    --bf16 True\n",
        {"launcher": "deepspeed", "world": None, "nodes": 1, "ds": "./scripts/zero3.json"},
    ),
    "LLaMA-Factory": (
        "FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 NPROC_PER_NODE=8 llamafactory-cli train a.yaml deepspeed=ds.json\n",
        {"launcher": "llamafactory", "world": 16, "nodes": 2, "framework_config": "a.yaml", "ds": "ds.json"},
    ),
    "LLaMA-Factory on visible GPUs": (
        "CUDA_VISIBLE_DEVICES=0,1,2 llamafactory-cli train a.yaml\n",
        {"launcher": "llamafactory", "world": 3, "framework": "llamafactory"},
    ),
    "ms-swift": (
        "n=2\nNPROC_PER_NODE=$n \\\nCUDA_VISIBLE_DEVICES=0,1 \\\nswift sft \\\n    --model Qwen/Qwen2-VL \\\n"
        "    --gradient_accumulation_steps $(expr 16 / $n) \\\n    --deepspeed zero3_offload\n",
        {"launcher": "swift", "world": 2, "ds": "zero3_offload", "framework": "ms-swift", "program": "sft"},
    ),
    "ms-swift on one GPU": ("CUDA_VISIBLE_DEVICES=0 swift pt --model x\n", {"launcher": "swift", "world": 1}),
    "trl": (
        "trl sft --config a.yaml --num_processes 4 --accelerate_config zero3\n",
        {"launcher": "trl", "world": 4, "framework_config": "a.yaml", "accelerate": "zero3"},
    ),
    "axolotl": ("axolotl train a.yml\n", {"launcher": "axolotl", "world": None, "framework_config": "a.yml"}),
    "axolotl by accelerate": (
        "accelerate launch --num_processes 8 -m axolotl.cli.train a.yml\n",
        {
            "launcher": "accelerate",
            "world": 8,
            "framework": "axolotl",
            "program": "axolotl.cli.train",
            "kind": "module",
        },
    ),
    "torch.distributed.launch": (
        "python3.10 -m torch.distributed.launch --nproc_per_node=4 --use_env train.py\n",
        {"launcher": "torch.distributed.launch", "world": 4, "program": "train.py"},
    ),
    "torch.distributed.run": (
        "python -m torch.distributed.run --nnodes=2 --nproc-per-node=4 -m pkg.train --x 1\n",
        {"launcher": "torchrun", "world": 8, "program": "pkg.train", "kind": "module"},
    ),
    "every GPU": ("torchrun --nproc_per_node auto train.py\n", {"launcher": "torchrun", "world": None, "nodes": 1}),
    "every visible GPU": (
        "export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node gpu train.py\n",
        {"launcher": "torchrun", "world": 2},
    ),
    "elastic": ("torchrun --nnodes 1:4 --nproc_per_node 8 t.py\n", {"nodes": None, "per_node": 8, "world": None}),
    "attached and short": ("deepspeed -H hosts --num_gpus=4 --module pkg.train\n", {"program": "pkg.train"}),
    "deepspeed on the visible GPUs": ("CUDA_VISIBLE_DEVICES=1,2 deepspeed train.py\n", {"world": 2}),
    "deepspeed ignores what is visible": (
        "CUDA_VISIBLE_DEVICES=1,2 deepspeed --num_gpus 4 train.py\n",
        {"world": 4, "visible": "1,2"},
    ),
    "include": ("deepspeed --include localhost:0,2,5 train.py\n", {"world": 3}),
    "several commands": ("nohup setsid env A=1 python train.py --x > log 2>&1 &\n", {"launcher": "python", "world": 1}),
    "a module": ("python -u -m pkg.train --x 1\n", {"launcher": "python", "program": "pkg.train", "kind": "module"}),
    "a function": ('main() {\n  torchrun --nproc_per_node ${N:-2} t.py "$@"\n}\nmain "$@"\n', {"world": 2}),
    "docker": ("docker run --gpus all --rm -v $(pwd):/w image torchrun --nproc_per_node 2 a.py\n", {"world": 2}),
    "mpirun": ("mpirun -np 16 --bind-to none -x PATH python t.py --deepspeed\n", {"launcher": "mpirun", "world": 16}),
    "an unknown launcher": ("$LAUNCHER train.py --x 1\n", {"launcher": "unknown", "world": None}),
    "unknown options": ("torchrun $ARGS train.py\n", {"launcher": "torchrun", "world": None, "program": "train.py"}),
    "uv": ("uv run --with x accelerate launch --num_processes=8 t.py\n", {"launcher": "accelerate", "world": 8}),
    "a Ray job": (
        "ray job submit --address=http://127.0.0.1:8265 --runtime-env-json "
        """'{"working_dir": "/w", "env_vars": {"N": "1"}}' --no-wait -- torchrun --nproc_per_node 2 a.py --lr 1\n""",
        {"launcher": "torchrun", "world": 2, "program": "a.py"},
    ),
    "condition": (
        'if [ "$HOST" = a ]; then N=8; else N=4; fi\ntorchrun --nproc_per_node $N t.py\n',
        {"world": None, "per_node": None},
    ),
    "DeepSpeed's own flags": (
        "deepspeed --num_gpus 2 t.py --deepspeed --deepspeed_config ds.json\n",
        {"ds": "ds.json", "world": 2},
    ),
    "a shebang-less one-liner": ("WANDB_MODE=offline deepspeed --num_gpus 8 t.py --deepspeed ds.json", {"world": 8}),
    "several words behind an option": ("torchrun t.py --deepspeed ds.json --layers q k -1 --x\n", {"ds": "ds.json"}),
}


def test_a_ray_job_gets_the_variables_of_its_runtime_environment(tmp_path: Path) -> None:
    variables = '{"env_vars": {"NCCL_DEBUG": "INFO", "DEPTH": 3}}'
    launch = only(tmp_path, f"ray job submit --runtime-env-json='{variables}' -- python -m a.b\n")
    assert launch.program.value == "a.b"
    assert launch.variable("NCCL_DEBUG").value == "INFO"
    assert not launch.variable("DEPTH").known  # Ray refuses what is no text
    broken = only(tmp_path, "ray job submit --runtime-env-json='{env' -- python c.py\n")
    assert broken.program.value == "c.py"


@pytest.mark.parametrize(("text", "expected"), TABLE.values(), ids=TABLE.keys())
def test_table(text: str, expected: dict[str, Any], tmp_path: Path) -> None:
    launch = only(tmp_path, text)
    found = {
        "launcher": launch.launcher,
        "world": launch.world_size.value,
        "nodes": launch.nodes.value,
        "per_node": launch.processes_per_node.value,
        "program": launch.program.value,
        "kind": launch.program_kind,
        "ds": launch.deepspeed_config.value,
        "accelerate": launch.accelerate_config.value,
        "framework": launch.framework,
        "framework_config": launch.framework_config.value,
        "visible": launch.visible_devices.value,
    }
    assert {name: found[name] for name in expected} == expected
    for field in (launch.world_size, launch.nodes, launch.processes_per_node):
        assert field.known or (field.reason is not None and field.reason.en and field.reason.zh)


def test_slurm(tmp_path: Path) -> None:
    launch = only(tmp_path, ACCELERATE_SLURM.replace("CALL", "--mem=200G $CMD"))
    assert launch.slurm["nodes"].value == "4"
    assert launch.slurm["gpus-per-node"].value == 4
    assert launch.slurm["mem"].value == "200G"
    assert launch.slurm["nodes"].place is not None
    assert launch.slurm["nodes"].place.line == 3


def test_accelerate_counts_all_processes(tmp_path: Path) -> None:
    config = "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 16\ndeepspeed_config:\n"
    config += "  deepspeed_config_file: ds.json\n"
    launch = only(tmp_path, "accelerate launch --config_file a.yaml t.py\n", a__yaml=config)
    assert (launch.nodes.value, launch.processes_per_node.value, launch.world_size.value) == (2, 8, 16)
    assert launch.deepspeed_config.value == "ds.json"
    place = launch.world_size.place
    assert place is not None
    assert place.source.path.endswith("a.yaml")
    assert place.line == 3


def test_options_overrule_accelerates_config(tmp_path: Path) -> None:
    config = "distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 8\n"
    launch = only(tmp_path, "accelerate launch --config-file a.yaml --num_processes 2 t.py\n", a__yaml=config)
    assert launch.world_size.value == 2


def test_hostfile(tmp_path: Path) -> None:
    hosts = "w0 slots=4\nw1 slots=4 # second\nw2 slots=4\n"
    launch = only(tmp_path, "deepspeed --hostfile hosts t.py\n", hosts=hosts)
    assert (launch.nodes.value, launch.world_size.value, launch.hostfile.value) == (3, 12, "hosts")
    launch = only(tmp_path, "deepspeed --hostfile hosts --exclude w1@w0:0,1,2,3 t.py\n", hosts=hosts)
    assert (launch.nodes.value, launch.world_size.value) == (1, 4)
    launch = only(tmp_path, "deepspeed --hostfile hosts --num_nodes 2 --num_gpus 2 t.py\n", hosts=hosts)
    assert (launch.nodes.value, launch.world_size.value) == (2, 4)
    launch = only(tmp_path, "deepspeed --hostfile elsewhere --include='a:0,1@b:0,1' t.py\n")
    assert (launch.nodes.value, launch.world_size.value) == (2, 4)
    launch = only(tmp_path, "deepspeed --hostfile elsewhere t.py\n")
    assert launch.world_size.unknown


def test_configs_that_the_script_writes(tmp_path: Path) -> None:
    text = (
        "cat > a.yaml <<'E'\ndistributed_type: DEEPSPEED\nnum_processes: 4\n"
        "deepspeed_config: {deepspeed_config_file: ds.json}\nE\n"
        'S=3\ncat > ds.json <<E\n{"zero_optimization": {"stage": $S}}\nE\n'
        "accelerate launch --config_file a.yaml t.py\n"
    )
    launch = only(tmp_path, text)
    assert launch.world_size.value == 4
    place = launch.world_size.place
    assert place is not None
    assert (place.line, place.span().text) == (3, "num_processes: 4")
    edit = place.edit("8")
    assert text.encode()[edit.start : edit.end] == edit.before == b"4"
    assert launch.deepspeed_config.value == "ds.json"
    written = launch.written_files[str(tmp_path / "ds.json")]
    assert written.text == '{"zero_optimization": {"stage": 3}}\n'
    assert written.place.line == 8
    assert not written.literal


def test_code_on_standard_input(tmp_path: Path) -> None:
    launch = only(tmp_path, "python - --x 1 <<'E'\nimport deepspeed\nE\n")
    assert launch.program.absent
    assert launch.heredoc is not None
    assert launch.heredoc.text == "import deepspeed\n"
    assert launch.heredoc.literal


def test_scripts_that_run_scripts(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text("torchrun --nproc_per_node ${NGPU} $1 --deepspeed $DS\n")
    launch = only(tmp_path, 'export NGPU=4\nDS=ds.json bash "$(dirname $0)/inner.sh" train.py\n')
    assert (launch.world_size.value, launch.program.value, launch.deepspeed_config.value) == (4, "train.py", "ds.json")
    assert launch.source.path.endswith("inner.sh")


def test_a_script_that_runs_itself(tmp_path: Path) -> None:
    assert launches(tmp_path, 'bash "$0"\nsource launch.sh\n') == ()


def test_the_folder_that_a_script_is_started_from(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    (tmp_path / "scripts/v1").mkdir(parents=True)
    launch = only(tmp_path / "scripts/v1", "deepspeed src/train.py\n")
    assert launch.cwd == tmp_path
    assert launch.notes


def test_a_loop_over_configs_launches_each(tmp_path: Path) -> None:
    found = launches(tmp_path, "for z in 2 3; do deepspeed --num_gpus=8 t.py --deepspeed ds_z$z.json; done\n")
    assert [launch.deepspeed_config.value for launch in found] == ["ds_z2.json", "ds_z3.json"]


def test_dockerfile(tmp_path: Path) -> None:
    text = (
        'FROM x\nENV NCCL_DEBUG=INFO \\\n    A=1\nENTRYPOINT ["torchrun", "--nproc_per_node", "4"]\nCMD ["train.py"]\n'
    )
    launch = only(tmp_path, text, "Dockerfile")
    assert (launch.world_size.value, launch.program.value) == (4, "train.py")
    assert launch.variable("NCCL_DEBUG").value == "INFO"
    launch = only(tmp_path, "FROM x\nCMD cd /w && \\\n  deepspeed --num_gpus 2 train.py\n", "Dockerfile")
    assert launch.world_size.value == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export A=1\ntorchrun t.py\n", "1"),
        ("A=1 torchrun t.py\n", "1"),
        ("env A=1 B=2 torchrun t.py\n", "1"),
        ("A=1\ntorchrun t.py\n", None),
        ("A=1\nexport A\ntorchrun t.py\n", "1"),
        ("set -a\nA=1\ntorchrun t.py\n", "1"),
        ("export A=1\nenv -u A torchrun t.py\n", None),
        ("export A=1\nenv -i torchrun t.py\n", None),
        ("export A=1\nunset A\ntorchrun t.py\n", None),
        ("export A=${A:-5}\ntorchrun t.py\n", "5"),
    ],
)
def test_variables(text: str, expected: str | None, tmp_path: Path) -> None:
    field = only(tmp_path, text).variable("A")
    assert field.value == expected
    assert field.absent == (expected is None)


@pytest.mark.parametrize(
    "text",
    [
        'N=4\nwhile getopts "g:" o; do case $o in g) N=$OPTARG ;; esac; done\ntorchrun --nproc_per_node $N t.py\n',
        'N=4\nA=$(getopt -o m: -- "$@")\neval set -- "$A"\nwhile true; do case "$1" in -m) N=$2; shift 2 ;; '
        "--) shift; break ;; *) exit 1 ;; esac; done\ntorchrun --nproc_per_node $N t.py\n",
        "srun bash <<'E'\ntorchrun --nproc_per_node 4 t.py\nE\n",
        'C="A=1 torchrun --nproc_per_node 4 t.py"\necho $C\neval $C\n',
        'C=(torchrun --nproc_per_node 4 t.py)\n"${C[@]}" 2>&1 | tee log\n',
        "srun bash -c 'N=4; torchrun --nproc_per_node $N t.py'\n",
        'N=4\nsrun bash -c "torchrun --nproc_per_node $N t.py"\n',
        "if ! command -v x; then echo no; fi\nexec torchrun --nproc_per_node 4 t.py\n",
        "for N in 4; do\n  torchrun --nproc_per_node $N t.py &\ndone\nwait\n",
        "export N=4; torchrun --nproc_per_node=${N} \\\n  t.py \\\n  # --lr 1 \\\n",
        "IDS=0,1,2,3\ntorchrun --nproc_per_node $(echo $IDS | tr ',' '\\n' | wc -l) t.py\n",
        'IDS=0,1,2,3\nIFS="," read -ra G <<< "$IDS"\ntorchrun --nproc_per_node ${#G[@]} t.py\n',
        'torchrun $(printf "%s" "--nproc_per_node 4") t.py\n',
    ],
)
def test_ways_to_say_four_processes(text: str, tmp_path: Path) -> None:
    launch = only(tmp_path, text)
    assert (launch.launcher, launch.world_size.value, launch.program.value) == ("torchrun", 4, "t.py")


def test_a_script_by_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("#!/usr/bin/env bash\ntorchrun --nproc_per_node 2 t.py\n")
    (launch,) = launches_of_command(["./run"], tmp_path)
    assert launch.world_size.value == 2


def test_accelerates_default_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate/default_config.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 8\n")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (launch,) = launches_of_command(["accelerate", "launch", "t.py"], tmp_path)
    assert launch.world_size.value == 8
    assert launch.accelerate_config.known
    assert launch.accelerate_config.reason is not None
    assert len(launch.notes) == 1
    (named,) = launches_of_command(["accelerate", "launch", "--config_file", "elsewhere.yaml", "t.py"], tmp_path)
    assert named.world_size.unknown


def test_llamafactory_by_its_yaml(tmp_path: Path) -> None:
    config = "stage: sft\nfinetuning_type: full\nmodel_name_or_path: m\ndeepspeed: ds.json\n"
    launch = only(tmp_path, "torchrun --nproc_per_node 2 src/train.py a.yaml\n", a__yaml=config)
    assert (launch.framework, launch.deepspeed_config.value) == ("llamafactory", "ds.json")


def test_ray_job_submit_has_no_option_with_a_value_that_is_not_known() -> None:
    from gonogo.evidence.launch.launchers.runners import _RAY_JOB_OPTIONS

    cli = pytest.importorskip("ray.dashboard.modules.job.cli")
    taking = [one for one in cli.submit.params if not getattr(one, "is_flag", True) and not one.count]
    with_value = {name for one in taking for name in one.opts}
    assert {name for name in with_value if name.startswith("-")} <= _RAY_JOB_OPTIONS
    assert "--runtime-env-json" in with_value
