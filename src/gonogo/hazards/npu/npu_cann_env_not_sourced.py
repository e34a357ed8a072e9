from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.shell_lines import is_shell_script
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Launch, Pattern, Run, Severity, translated

_NPU_PATTERN = Pattern(r"(?i)torch_npu|ascend|昇腾|\bcann\b|\bnpu\b")
_GENERIC_CANN_LIBRARY_PATTERN = Pattern(r"lib(?:runtime|graph\w*|register|platform|acl|c_sec|atb|alog)\.so")


class NpuCannEnvNotSourced(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A script for NPUs that sources nothing."""
        variable = next((name for name in launch.variables if name.startswith(("ASCEND_", "HCCL_"))), None)
        if variable is None or not is_shell_script(launch.source) or launch.in_container:
            return
        text = launch.source.text
        if (
            self.patterns["environment_setup"].search(text) is not None
            or "ASCEND_HOME_PATH" in text
            or "ASCEND_TOOLKIT_HOME" in text
        ):
            return
        yield self.finding(
            self.texts["cause_in_launch"].format(name=variable),
            certainty=Certainty.POSSIBLE,
            severity=Severity.NOTE,
            spans=launch.variables[variable].span() or launch.place.span(),
            confirm=translated("echo $ASCEND_HOME_PATH prints nothing"),
        )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A machine with CANN and torch_npu, in an environment without the variables of set_env.sh."""
        if not environment.cann.known or environment.has("torch-npu") is not True:
            return
        names = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH")
        if not all(environment.variable(name).absent for name in names):
            return
        if run.launch is not None and self.patterns["environment_setup"].search(run.launch.source.text) is not None:
            return
        place = environment.place("torch-npu")
        yield self.finding(
            self.texts["cause_in_environment"].format(cann=environment.cann.value),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=self.cures[:1],
            spans=(
                run.launch.place.span() if run.launch is not None else None,
                place.span() if place is not None else None,
            ),
            confirm=translated("echo $ASCEND_HOME_PATH prints nothing"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A missing library or variable of CANN; less certain: a missing Python package of CANN."""
        found = log.find(self.patterns["cann_not_set"]) or log.find(self.patterns["cann_library"])
        certainty = Certainty.CERTAIN
        if found is not None and _GENERIC_CANN_LIBRARY_PATTERN.search(found.text) and log.find(_NPU_PATTERN) is None:
            certainty = Certainty.POSSIBLE  # other software has libraries of the same names
        if found is None:
            found = log.find(self.patterns["python_path"]) if log.find(_NPU_PATTERN) else None
            certainty = Certainty.LIKELY
        if found is None:
            return
        yield self.log_finding(
            found,
            translated("The process does not find CANN: its set_env.sh was not sourced where the process was started."),
            certainty=certainty,
            confirm=translated("echo $ASCEND_HOME_PATH prints nothing there"),
        )
