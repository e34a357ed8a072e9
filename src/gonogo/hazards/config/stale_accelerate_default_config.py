from gonogo.hazards.facts.fsdp import is_fsdp_requested
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Launch, Pattern, Run, Severity, translated

_LAYER_CLASS_NOT_FOUND_PATTERN = Pattern(r"Could not find the transformer layer (?:class|cls)")
_LAUNCH_MODES = ("use_deepspeed", "use_fsdp", "multi_gpu", "cpu", "tpu", "use_megatron_lm")


class StaleAccelerateDefaultConfig(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A launch that names no config and therefore uses this machine's default."""
        if launch.launcher != "accelerate" or "config_file" in launch.launcher_options:
            return
        if not launch.launcher_options.complete or any(name in launch.launcher_options for name in _LAUNCH_MODES):
            return
        program = next((name for name in ("deepspeed", "deepspeed_config") if name in launch.options), None)
        if program is None:
            return
        requested = launch.options.get(program)
        kind = run.accelerate.distributed_type.string if run.accelerate is not None else None
        deepspeed = translated("the program is given a DeepSpeed config here")
        if kind is not None and kind.upper() in ("FSDP", "MEGATRON_LM"):
            yield self.finding(
                self.texts["other_engine_cause"].format(
                    path=launch.accelerate_config.get("default_config.yaml"), kind=kind
                ),
                certainty=Certainty.LIKELY,
                cure=self.cures[::-1],
                spans=(launch.place.span(), requested.span(deepspeed)),
                confirm=translated("accelerate's default config was written for a different run"),
            )
        elif kind is None and "num_processes" not in launch.launcher_options:
            yield self.finding(
                self.texts["nothing_named_cause"],
                severity=Severity.NOTE,
                certainty=Certainty.POSSIBLE,
                cure=self.cures[1],
                spans=(launch.place.span(), requested.span(deepspeed)),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """FSDP's error about its layer class, in a run that does not ask for FSDP."""
        evidence = log.find(_LAYER_CLASS_NOT_FOUND_PATTERN)
        if evidence is None:
            return
        named = log.find(self.patterns["default_file"])
        requested = is_fsdp_requested(log)
        if requested and named is None:
            return
        yield self.log_finding(
            evidence,
            certainty=_judge_certainty(requested, named is not None),
            extra_evidence=(named,) if named else (),
            confirm=self.texts["confirm"],
        )


def _judge_certainty(requests_fsdp: bool | None, is_named: bool) -> Certainty:
    """The certainty: certain if the run doesn't ask for FSDP and its log names the default file."""
    if is_named and not requests_fsdp:
        return Certainty.CERTAIN
    return Certainty.LIKELY if is_named or requests_fsdp is False else Certainty.POSSIBLE
