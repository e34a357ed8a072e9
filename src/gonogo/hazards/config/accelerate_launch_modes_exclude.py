from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Severity, translated

_LAUNCH_MODES = ("cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp")
_ZERO_OPTIONS = (
    *("zero_stage", "offload_optimizer_device", "offload_param_device", "zero3_init_flag", "zero3_save_16bit_model"),
    *("deepspeed_config_file", "offload_optimizer_nvme_path", "offload_param_nvme_path"),
)


class AccelerateLaunchModesExclude(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Options of the launcher that exclude each other."""
        options = launch.launcher_options
        if launch.launcher != "accelerate":
            return
        modes = [name for name in _LAUNCH_MODES if name in options]
        if len(modes) > 1:
            places = [options.place_of(name) for name in modes]
            yield self.finding(
                translated("accelerate launch is given {modes}, but accepts only one of them.").format(
                    modes=", ".join(f"--{name}" for name in modes)
                ),
                cure=translated("Keep the intended one (--use_deepspeed for ZeRO)"),
                spans=tuple(place.span() for place in places if place is not None),
                fixes=fix_with_edits(
                    translated("Remove --multi_gpu"), lambda: options.removing("multi_gpu"), safe=False
                )
                if modes == ["multi_gpu", "use_deepspeed"] and options.can_edit("multi_gpu")
                else (),
            )
            return
        if "use_deepspeed" in modes or "use_fsdp" in modes or not options.complete:
            return
        yaml = run.accelerate
        if "multi_gpu" not in modes and (
            yaml.enables_deepspeed is not False if yaml is not None else _has_config_file(launch)
        ):
            return
        given = [name for name in _ZERO_OPTIONS if name in options]
        if not given:
            return
        places = [options.place_of(name) for name in given]
        yield self.finding(
            self.texts["cause"].format(given=", ".join(f"--{name}" for name in given)),
            severity=Severity.WARNING,
            certainty=Certainty.LIKELY,
            cure=translated("Add --use_deepspeed"),
            spans=tuple(place.span() for place in places if place is not None),
        )


def _has_config_file(launch: Launch) -> bool:
    """Whether the launch names a config file, which might turn DeepSpeed on."""
    return "config_file" in launch.launcher_options
