from gonogo.evidence.field import whole_number
from gonogo.hazards.facts.launch_facts import TORCHRUN
from gonogo.hazards.rule import Field, Findings, Fix, Hazard, Launch, Run, Text

_COUNTS = {
    **dict.fromkeys(TORCHRUN, ("master_port", "max_restarts", "nnodes", "node_rank", "nproc_per_node")),
    "deepspeed": ("master_port", "node_rank", "num_accelerators", "num_gpus", "num_nodes"),
    "accelerate": (
        *("machine_rank", "main_process_port", "num_cpu_threads_per_process", "num_machines", "num_processes"),
    ),
}

_WHICH = {"deepspeed": "--include localhost:"}


class LaunchCountNotANumber(Hazard):
    """An option of the launcher that takes a number is given something else.
    ## What happens
    "argument --num_gpus: invalid int value: '0,1,2,3'", or "Unsupported nproc_per_node value: train.py", before
    anything starts.
    ## Why
    --num_gpus and --nproc_per_node say how many processes, not on which GPUs. An option without its value takes the
    next word for it: the program.
    ## Example
    ```sh
    deepspeed --num_gpus 0,1,2,3 train.py           # wrong
    deepspeed --include localhost:0,1,2,3 train.py  # right
    ```
    ## Cure
    The number: `--num_gpus 4`; which GPUs: `--include localhost:0,1,2,3` or CUDA_VISIBLE_DEVICES=0,1,2,3.
    ## When it is safe
    Never. torchrun takes `gpu` and `auto` for --nproc_per_node, and `1:4` for --nnodes.
    ## Sources
    - https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py: `determine_local_world_size`
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/runner.py: the options are of type int
    """

    name = "launch-count-not-a-number"
    title = Text("A launcher's option takes a number, and is given none", "启动器的选项需要数字，给出的却不是")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The launcher's options of type int."""
        for name in _COUNTS.get(launch.launcher, ()):
            if name not in launch.launcher_options:
                continue
            field = launch.launcher_options.get(name)
            if not _is_wrong(field):
                continue
            value = str(field.value) if field.value is not True else ""
            gpus = [part for part in value.split(",") if part.strip().isdigit()] if "," in value else []
            fixes: tuple[Fix, ...] = ()
            if len(gpus) > 1 and launch.launcher == "deepspeed" and launch.launcher_options.can_edit(name):
                place = launch.launcher_options.place_of(name)
                if place is not None:
                    include = f"--include localhost:{','.join(gpus)}"
                    title = Text("name the GPUs: {include}", "指定 GPU：{include}").format(include=include)
                    fixes = (self.fix(title, place.edit(include), safe=False),)
            yield self.finding(
                Text(
                    "--{name} is given {value}: {launcher} takes a number there, and stops.",
                    "--{name} 得到 {value}：{launcher} 在此处只接受数字，会直接退出。",
                ).format(
                    name=name, value=f"`{value}`" if value else Text("no value", "空值"), launcher=launch.launcher
                ),
                cure=(
                    Text(
                        "Name the GPUs with {which}, or give their number: --{name} {count}",
                        "用 {which} 指定 GPU，或只写数目：--{name} {count}",
                    ).format(
                        name=name,
                        count=len(gpus),
                        which=f"{_WHICH.get(launch.launcher, 'CUDA_VISIBLE_DEVICES=')}{','.join(gpus)}",
                    )
                    if len(gpus) > 1
                    else Text(
                        "Give --{name} its number: --{name} 8 {value}", "给 --{name} 写上数字：--{name} 8 {value}"
                    ).format(name=name, value=value)
                ),
                spans=field.span() or launch.place.span(),
                fixes=fixes,
            )


def _is_wrong(field: Field) -> bool:
    if not field.known or whole_number(field) is not None:
        return False
    if field.value is True:
        return True
    value = str(field.value).strip()
    # Anything else may be a placeholder, or a text that a second shell expands.
    return value.endswith(".py") or ("," in value and value.replace(",", "").replace(" ", "").isdigit())
