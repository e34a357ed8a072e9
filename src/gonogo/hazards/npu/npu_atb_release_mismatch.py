from gonogo.hazards.facts.shell_lines import is_shell_script, lines_from
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Pattern, Run, Severity, translated

_SOURCED_SCRIPT_PATTERN = Pattern(r"^\s*(?:source|\.)\s+\S*nnal/atb/set_env\.sh\s*(?:[;&#]|$)")
_ACTIVATION_PATTERN = Pattern(r"^\s*(?:(?:conda|mamba|micromamba) activate\b|(?:source|\.)\s+\S+/bin/activate\b)")
_CURE = (
    translated(
        "Install torch and torch_npu and activate their environment first, then in a new shell source CANN's "
        "set_env.sh and nnal/atb/set_env.sh (--cxx_abi=0 or 1 sets the C++ ABI manually)"
    ),
    translated("Install CANN's toolkit, kernels and NNAL in the same version, the one that torch_npu specifies"),
)


class NpuAtbReleaseMismatch(LoggedHazard):
    cures = _CURE

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """set_env.sh of ATB sourced before the environment with torch is activated."""
        if "nnal/atb/set_env.sh" not in launch.source.text or not is_shell_script(launch.source):
            return
        lines = tuple(lines_from(launch.source, 1))
        sourced = [line for line in lines if _SOURCED_SCRIPT_PATTERN.search(line.code)]
        activated = [line for line in lines if _ACTIVATION_PATTERN.search(line.code)]
        if sourced and activated and sourced[-1].number < activated[-1].number:
            yield self.finding(
                certainty=Certainty.POSSIBLE,
                severity=Severity.WARNING,
                cure=_CURE[:1],
                spans=(sourced[-1].place().span(), activated[-1].place().span(translated("activated here"))),
            )
