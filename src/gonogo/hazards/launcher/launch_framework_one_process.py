from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.launch_facts import visible_gpus
from gonogo.hazards.rule import Certainty, Findings, Fix, Hazard, Launch, Pattern, Run, Text, translated, whole_number

_FORCED = translated("Set FORCE_TORCHRUN=1 for the command")
_REFUSALS = (
    (
        Pattern(r"Please use `?FORCE_TORCHRUN=1`? to launch"),
        translated("One process was started without torchrun, but DeepSpeed is configured."),
        _FORCED,
    ),
    (
        Pattern(
            r"DeepSpeed is not compatible with (?:MP\b|`?device_map)|with vLLM is not compatible with `?device_map"
        ),
        translated(
            "Fewer processes were started than GPUs are visible: NPROC_PER_NODE is not set where the command runs, or "
            "is too small, so ms-swift spreads the model over the GPUs of a process."
        ),
        translated("Set NPROC_PER_NODE to the number of visible GPUs for the command, on every node"),
    ),
)
"""The errors of LLaMA-Factory and ms-swift, with cause and cure."""


class LaunchFrameworkOneProcess(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """The framework's own error."""
        for words, cause, cure in _REFUSALS:
            found = next(log.errors_of(says=words), None) or log.find(words)
            if found is not None:
                yield self.log_finding(found, cause, cure=cure)
                return

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The framework's own command with a DeepSpeed config and variables by which it starts a single process."""
        if not launch.deepspeed_config.known or launch.launcher not in ("swift", "llamafactory"):
            return
        visible = visible_gpus(launch)
        if launch.launcher == "swift":
            yield from self._swift_findings(launch, visible)
        elif launch.variable("FORCE_TORCHRUN").absent and visible is not None and len(visible) == 1:
            yield self.finding(
                self.texts["cause_in_launch"].format(gpu=visible[0]),
                cure=_FORCED,
                spans=(launch.place.span(), launch.deepspeed_config.span(), launch.visible_devices.span()),
                fixes=self._set_variable_fix(launch, "FORCE_TORCHRUN", "1"),
            )

    def _swift_findings(self, launch: Launch, visible: list[str] | None) -> Findings:
        each, nodes = launch.variable("NPROC_PER_NODE"), launch.variable("NNODES")
        if not nodes.absent or not launch.variable("SWIFT_SINGLE_DEVICE_MODE").absent:
            return
        processes = whole_number(each)
        if each.absent:
            processes = 1
        if processes is None or (visible is not None and len(visible) < 2 * processes):
            return
        if visible is None and not each.absent:
            return
        count = len(visible) if visible is not None else None
        yield self.finding(
            self.texts["swift_cause"].format(
                visible=Text(f"{count} GPUs are visible", f"可见 {count} 张 GPU")
                if count
                else translated("Several GPUs may be visible"),
                given=translated("NPROC_PER_NODE is not set")
                if each.absent
                else Text(f"NPROC_PER_NODE is {processes}", f" NPROC_PER_NODE 为 {processes}"),
            ),
            certainty=Certainty.CERTAIN if count else Certainty.POSSIBLE,
            cure=translated("Set NPROC_PER_NODE={count}, one process per GPU").format(
                count=count or translated("the number of GPUs")
            ),
            spans=(
                launch.place.span() if each.absent else each.span(),
                launch.deepspeed_config.span(),
                launch.visible_devices.span(Text(f"{count} GPUs", f"{count} 张 GPU")),
            ),
            fixes=self._set_variable_fix(launch, "NPROC_PER_NODE", str(count)) if count else None,
        )

    def _set_variable_fix(self, launch: Launch, name: str, value: str) -> Fix | None:
        title = translated("set {name}={value}").format(name=name, value=value)
        return self.fix(title, launch.setting_variable(name, value), safe=False) if launch.source.writable else None
