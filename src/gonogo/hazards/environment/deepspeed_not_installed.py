from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.rule import Certainty, Field, Findings, Pattern, Run, Text
from gonogo.hazards.version_rule import NotInstalled


class DeepspeedNotInstalled(NotInstalled):
    def asked(self, run: Run) -> tuple[str, Field] | None:
        """A launch with DeepSpeed, or a config of its."""
        if run.launch is None:
            return None
        if run.launch.launcher == "deepspeed":
            return "deepspeed", Field.of("deepspeed", run.launch.place)
        return ("deepspeed", run.config_field) if run.deepspeed_on and run.config_field.known else None

    def in_log(self, log: FailureLog) -> Findings:
        """accelerate's or Python's word for it, in the Python that trains."""
        evidence = next(log.errors_of("ImportError", "ModuleNotFoundError", says=_ABSENT), None) or log.find(_ABSENT)
        if evidence is not None:
            yield self.log_finding(
                evidence,
                Text(
                    "The Python that trains finds no deepspeed: it is not installed there, or in another environment.",
                    "训练所用的 Python 找不到 deepspeed：没有安装，或装在另一个环境中。",
                ),
                certainty=Certainty.LIKELY,
                cure=(
                    Text(
                        "python -m pip install deepspeed, with the Python that the launcher starts (torchrun and "
                        "accelerate are each of one environment: which accelerate)",
                        "用启动器所用的 Python 执行 python -m pip install deepspeed（torchrun 与 accelerate 各属于"
                        "某个环境：which accelerate）",
                    ),
                    Text("On every node, and in Ray's runtime env", "每个节点以及 Ray 的 runtime env 都要安装"),
                ),
                confirm=Text(
                    'python -c "import deepspeed" fails in the environment that trains',
                    '训练环境中 python -c "import deepspeed" 失败',
                ),
            )


_ABSENT = Pattern(
    r"DeepSpeed is not installed => run|No module named 'deepspeed'"
    r"|requires DeepSpeed to be installed|DeepSpeed is (?:required|not available)"
    r"|(?:^|[\s:])deepspeed: (?:command )?not found|command not found: deepspeed$"
)
