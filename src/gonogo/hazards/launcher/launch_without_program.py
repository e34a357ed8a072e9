from gonogo.hazards.rule import FailureLog, Findings, Hazard, Launch, Pattern, Run, translated

# What each launcher calls the program in its usage; `torch.distributed.launch` is torchrun's old name.
_PROGRAM_ARGUMENT_NAMES = {
    "torchrun": "training_script",
    "torch.distributed.launch": "training_script",
    "accelerate": "training_script",
    "deepspeed": "user_script",
}
_REQUIRED_PATTERN = Pattern(r"error: the following arguments are required: (?:training_script|user_script)\b")
_HELP_OPTIONS = ("help", "h", "version")


class LaunchWithoutProgram(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A launcher with fully known arguments, none of which is the program."""
        wanted = _PROGRAM_ARGUMENT_NAMES.get(launch.launcher)
        if (
            wanted is None
            or not launch.program.absent
            or any(name in launch.launcher_options for name in _HELP_OPTIONS)
        ):
            return
        yield self.finding(
            self.texts["cause"].format(launcher=launch.launcher, wanted=wanted), spans=launch.place.span()
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A launcher's error about the missing program."""
        line = log.find(_REQUIRED_PATTERN)
        if line is not None:
            yield self.log_finding(
                line,
                translated("The launcher was given no program to start: its command ended before the program's name."),
            )
