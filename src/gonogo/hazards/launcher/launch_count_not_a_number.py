from gonogo.hazards.facts.launch_facts import TORCHRUN
from gonogo.hazards.rule import Field, Findings, Fix, Hazard, Launch, Run, translated, whole_number

_INTEGER_OPTIONS = {
    **dict.fromkeys(TORCHRUN, ("master_port", "max_restarts", "nnodes", "node_rank", "nproc_per_node")),
    "deepspeed": ("master_port", "node_rank", "num_accelerators", "num_gpus", "num_nodes"),
    "accelerate": (
        *("machine_rank", "main_process_port", "num_cpu_threads_per_process", "num_machines", "num_processes"),
    ),
}

_GPU_SELECTION_PREFIXES = {"deepspeed": "--include localhost:"}


class LaunchCountNotANumber(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Values of the launcher's integer options that are not numbers."""
        for name in _INTEGER_OPTIONS.get(launch.launcher, ()):
            if name not in launch.launcher_options:
                continue
            field = launch.launcher_options.get(name)
            if not _is_certainly_not_a_number(field):
                continue
            value = str(field.value) if field.value is not True else ""
            gpus = [part for part in value.split(",") if part.strip().isdecimal()] if "," in value else []
            fixes: tuple[Fix, ...] = ()
            if len(gpus) > 1 and launch.launcher == "deepspeed" and launch.launcher_options.can_edit(name):
                place = launch.launcher_options.place_of(name)
                if place is not None:
                    include = f"--include localhost:{','.join(gpus)}"
                    title = translated("name the GPUs: {include}").format(include=include)
                    fixes = (self.fix(title, place.edit(include), safe=False),)
            yield self.finding(
                translated("--{name} is given {value}: {launcher} expects a number there and exits.").format(
                    name=name, value=f"`{value}`" if value else translated("no value"), launcher=launch.launcher
                ),
                cure=(
                    translated("Name the GPUs with {which}, or give their count: --{name} {count}").format(
                        name=name,
                        count=len(gpus),
                        which=_GPU_SELECTION_PREFIXES.get(launch.launcher, "CUDA_VISIBLE_DEVICES=") + ",".join(gpus),
                    )
                    if len(gpus) > 1
                    else translated("Give --{name} a number: --{name} 8 {value}").format(name=name, value=value)
                ),
                spans=field.span() or launch.place.span(),
                fixes=fixes,
            )


def _is_certainly_not_a_number(field: Field) -> bool:
    if not field.known or whole_number(field) is not None:
        return False
    if field.value is True:
        return True
    value = str(field.value).strip()
    # Anything else may be a placeholder, or a string that another shell expands.
    return value.endswith(".py") or ("," in value and value.replace(",", "").replace(" ", "").isdecimal())
