from gonogo.hazards.facts.launch_facts import variable_name_place
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, translated

# Old names, the new ones, the package that reads them, and the releases that know the new one.
_RENAMED = {
    "NCCL_ASYNC_ERROR_HANDLING": ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "torch", ">=2.2"),
    "NCCL_BLOCKING_WAIT": ("TORCH_NCCL_BLOCKING_WAIT", "torch", ">=2.2"),
    "NCCL_DESYNC_DEBUG": ("TORCH_NCCL_DESYNC_DEBUG", "torch", ">=2.2"),
    "NCCL_ENABLE_TIMING": ("TORCH_NCCL_ENABLE_TIMING", "torch", ">=2.2"),
    "NCCL_AVOID_RECORD_STREAMS": ("TORCH_NCCL_AVOID_RECORD_STREAMS", "torch", ">=2.2"),
    "TRANSFORMERS_CACHE": ("HF_HOME", "transformers", ">=4.36"),
    "HUGGING_FACE_HUB_TOKEN": ("HF_TOKEN", "huggingface-hub", ">=0.18"),
}
_SAME_MEANING = frozenset(_RENAMED) - {"TRANSFORMERS_CACHE"}


class LaunchDeprecatedVariable(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Deprecated names of variables, if the release that will run knows the new one or is unknown."""
        for name, (new, package, since) in _RENAMED.items():
            field = launch.variables.get(name)
            place = field.place if field is not None else None
            if field is None or place is None or launch.variable(new).known:
                continue
            known = run.environment.within(package, since)
            if known is False:
                continue
            word = variable_name_place(field, name)
            yield self.finding(
                translated("{name} is the old name of {new} ({package} {since}).").format(
                    name=name, new=new, package=package, since=since
                ),
                cure=(
                    translated("Set {new} instead").format(new=new)
                    if name in _SAME_MEANING
                    else translated("Set {new} to the folder for the caches (models are in its hub subfolder)").format(
                        new=new
                    )
                ),
                spans=field.span(),
                fixes=self.fix(translated("rename it to {name}").format(name=new), word.edit(new))
                if known and name in _SAME_MEANING and word is not None
                else None,
            )
