from pathlib import Path

from gonogo.evidence.field import whole_number
from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.line import LogLine
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Launch, Pattern, Run, Severity, Text, translated

_NO_GPUS_PATTERN = Pattern(
    r"no GPUs found|No CUDA GPUs are available|Torch not compiled with CUDA|No HIP GPUs are available"
)
_NCCL_WITHOUT_GPUS_PATTERN = Pattern(r"ProcessGroupNCCL is only supported with GPUs")
_NODE_PATTERN = Pattern(r"^([A-Za-z][\w-]{0,60}\d[\w.-]{0,60}|\d{1,3}(?:\.\d{1,3}){3}): ")
_MULTI_NODE_SETUP_PATTERN = r"--hostfile[= ]|--num_nodes[= ][2-9]|deepspeed_multinode_launcher|--force_multi"
_NO_HOSTFILE_PATTERN = Pattern(r"Unable to find hostfile, will proceed with training with local resources only")


class DeepspeedEnvNotPropagated(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Variables that the script exports, several nodes over ssh, and no .deepspeed_env in the folder."""
        options = launch.launcher_options
        if launch.launcher != "deepspeed" or "no_ssh" in options or "launcher" in options:
            return
        nodes = whole_number(launch.nodes)
        if nodes is None or nodes < 2:
            return
        lost = [
            (name, field)
            for name, field in launch.variables.items()
            if not name.startswith(_PASSED_ON) and self.patterns["program_variable"].search(name) is not None
        ]
        listed = _read_deepspeed_env(launch.cwd / ".deepspeed_env") | _read_deepspeed_env(
            Path.home() / ".deepspeed_env"
        )
        lost = [(name, field) for name, field in lost if name not in listed and field.place is not None]
        if not lost or not launch.variable("DS_ENV_FILE").absent:
            return
        names = [name for name, _field in lost]
        yield self.finding(
            self.texts["cause_in_launch"].format(
                names=Text(", ".join(names), "、".join(names)),
                are="is" if len(names) == 1 else "are",
                passed=Text("*, ".join(_PASSED_ON), "*、".join(_PASSED_ON)),
            ),
            severity=Severity.WARNING,
            cure=translated("Put into .deepspeed_env next to the script (or in ~), one per line: {lines}").format(
                lines=", ".join(f"{name}=…" for name in names)
            ),
            spans=(*(field.span() for _name, field in lost), launch.place.span()),
            confirm=translated("~/.deepspeed_env does not list them"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """GPUs, variables or libraries missing on other nodes that the launcher started."""
        no_gpus, missing = log.find(_NO_GPUS_PATTERN), log.find(self.patterns["missing_variable"])
        if no_gpus is None and missing is None:
            return
        several = (
            log.find(self.patterns["multi_node"]) is not None
            or log.setup.mentions(_MULTI_NODE_SETUP_PATTERN)
            or len(_logged_nodes(log)) > 1
        )
        if log.find(_NO_HOSTFILE_PATTERN) is not None and len(_logged_nodes(log)) < 2 and not log.has("pdsh"):
            several = False
        if no_gpus is not None and (several or _NCCL_WITHOUT_GPUS_PATTERN.search(no_gpus.text)):
            yield self._missing_variable_finding(no_gpus, Certainty.LIKELY if several else Certainty.POSSIBLE)
        elif missing is not None and several and _on_remote_nodes_only(log, missing):
            yield self._missing_variable_finding(missing, Certainty.LIKELY)

    def _missing_variable_finding(self, line_match: LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(
            line_match,
            self.texts["missing_cause"].format(
                node=Text(f"Node {node}", f"节点 {node} ")
                if (node := _node_of_line(line_match.line))
                else translated("A rank")
            ),
            cure=(
                translated("Put into ~/.deepspeed_env on the launching node, one NAME=VALUE per line: {names}").format(
                    names=next((name for name in line_match.match.groups() if name), None)
                    or translated("LD_LIBRARY_PATH, PATH, CUDA_HOME, HF_HOME ...")
                ),
                self.texts["cure"],
            ),
            certainty=certainty,
            confirm=self.texts["confirm"],
        )


def _node_of_line(line: LogLine) -> str | None:
    """The node in pdsh's prefix of a line, even if too few lines have it for the parser to strip it."""
    if line.node is not None:
        return line.node
    prefix = _NODE_PATTERN.match(line.text)
    return prefix.group(1) if prefix else None


def _logged_nodes(log: FailureLog) -> set[str]:
    return {node for line in log.lines if (node := _node_of_line(line)) is not None}


def _on_remote_nodes_only(log: FailureLog, line_match: LineMatch) -> bool:
    """True if the lines name their nodes and the first node, which launches, does not have the problem."""
    first = next((node for line in log.lines if (node := _node_of_line(line)) is not None), None)
    own = _node_of_line(line_match.line)
    return own is not None and own != first


_PASSED_ON = ("NCCL", "PYTHON", "MLFLOW", "MV2", "UCX")


def _read_deepspeed_env(path: Path) -> set[str]:
    """The names in a .deepspeed_env."""
    try:
        return {line.partition("=")[0].strip() for line in path.read_text(errors="replace").splitlines()}
    except OSError:
        return set()
