from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.shell_lines import is_shell_script
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Launch, Pattern, Run, Severity, translated

_CANN_LIBRARY_PATTERN = Pattern(
    r"lib(?:hccl\w*|hccd|ascendcl|ascend_hal|ascend_\w+|acl\w*|ge_\w+|graph\w*|msprofiler|runtime|opapi|nnopbase|atb"
    r"|te_fusion|mmpa|profapi|error_manager|register|platform|exe_graph|aclnn\w*|c_sec|drvdsmi_host|dcmi|tiling_api"
    r"|asdops|op_compile_adapter|cust_opapi|alog|unified_dlog)\.so[.\d]*: cannot open sh"
)
_CANN_NOT_SET_PATTERN = Pattern(
    r"source set_env\.sh|set_env\.sh['\"]? (?:is|was|has) not|ASCEND_(?:HOME_PATH|OPP_PATH|TOOLKIT_HOME|AICPU_PATH)\S*"
    r" (?:environment variable )?(?:is|was|does|has) not|check that the cann package is installed"
    r"|KeyError: 'ASCEND_(?:HOME_PATH|OPP_PATH|TOOLKIT_HOME)'|libtorch_npu\.so: undefined symbol"
)
_PYTHON_PATH = Pattern(
    r"No module named '?(?:acl|tbe|te|hccl|auto_tune|schedule_search|opc_tool|tbe\.\w+"
    r"|te\.\w+)'?(?:\W|$)"
)
_NPU = Pattern(r"(?i)torch_npu|ascend|昇腾|\bcann\b|\bnpu\b")
_GENERIC_CANN_LIBRARY = Pattern(r"lib(?:runtime|graph\w*|register|platform|acl|c_sec|atb|alog)\.so")
_CURE = (
    translated(
        "In the shell (and the service, container or job script) that starts the run: source "
        "/usr/local/Ascend/ascend-toolkit/set_env.sh; for libatb.so also /usr/local/Ascend/nnal/atb/set_env.sh"
    ),
    translated(
        "For libascend_hal.so or libdrvdsmi_host.so: mount the driver, -v "
        "/usr/local/Ascend/driver:/usr/local/Ascend/driver, and add its lib64/driver to LD_LIBRARY_PATH"
    ),
    translated("If the library is nowhere under /usr/local/Ascend: install the CANN toolkit that torch_npu specifies"),
)


class NpuCannEnvNotSourced(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A script for NPUs that sources nothing."""
        variable = next((name for name in launch.variables if name.startswith(("ASCEND_", "HCCL_"))), None)
        if variable is None or not is_shell_script(launch.source) or launch.in_container:
            return
        text = launch.source.text
        if (
            _ENVIRONMENT_SETUP_PATTERN.search(text) is not None
            or "ASCEND_HOME_PATH" in text
            or "ASCEND_TOOLKIT_HOME" in text
        ):
            return
        yield self.finding(
            translated(
                "The script is for NPUs ({name}) but sources no set_env.sh: unless the calling shell has done "
                "so, CANN's libraries are not found."
            ).format(name=variable),
            certainty=Certainty.POSSIBLE,
            severity=Severity.NOTE,
            cure=_CURE,
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
        if run.launch is not None and _ENVIRONMENT_SETUP_PATTERN.search(run.launch.source.text) is not None:
            return
        place = environment.place("torch-npu")
        yield self.finding(
            translated(
                "CANN {cann} is on the machine, but its set_env.sh has not been sourced in this environment: "
                "import torch_npu finds none of its libraries."
            ).format(cann=environment.cann.value),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=_CURE[:1],
            spans=(
                run.launch.place.span() if run.launch is not None else None,
                place.span() if place is not None else None,
            ),
            confirm=translated("echo $ASCEND_HOME_PATH prints nothing"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A missing library or variable of CANN; less certain: a missing Python package of CANN."""
        found = log.find(_CANN_NOT_SET_PATTERN) or log.find(_CANN_LIBRARY_PATTERN)
        certainty = Certainty.CERTAIN
        if found is not None and _GENERIC_CANN_LIBRARY.search(found.text) and log.find(_NPU) is None:
            certainty = Certainty.POSSIBLE  # other software has libraries of the same names
        if found is None:
            found = log.find(_PYTHON_PATH) if log.find(_NPU) else None
            certainty = Certainty.LIKELY
        if found is None:
            return
        yield self.log_finding(
            found,
            translated("The process does not find CANN: its set_env.sh was not sourced where the process was started."),
            cure=_CURE,
            certainty=certainty,
            confirm=translated("echo $ASCEND_HOME_PATH prints nothing there"),
        )


_ENVIRONMENT_SETUP_PATTERN = Pattern(
    r"set_env\.sh|setenv\.bash|^[ \t]*(?:source|\.)[ \t]|bash -l\b|conda activate|module load"
)
