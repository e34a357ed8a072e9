from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.environment._machine import NOT_PREBUILT, operators
from gonogo.hazards.environment._op_build import FIND_THE_ERROR, unexplained_build
from gonogo.hazards.environment._surroundings import first
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, Severity, Text

_MISSING = Pattern(
    r"(?i)ninja is required to (?:load|build)|due to ninja not being installed"
    r"|No such file or directory: '(?:\S*/)?ninja'"
    r"|ninja: (?:command )?not found|Command '\['(?:which', 'ninja|ninja', '--version)'\]'"
)
_NINJA_RAN = Pattern(r"\['ninja', '-v'|ninja: build stopped|Emitting ninja build file|Building extension module")
_CURE = (
    Text("pip install ninja on every node, in the environment of the run", "在每个节点的运行环境中 pip install ninja"),
    Text(
        "Where pip shows it installed: put the environment's bin folder into PATH of the launched processes (ninja "
        "--version must answer there); pdsh and sudo drop it",
        "若 pip 显示已安装：把该环境的 bin 目录加入被启动进程的 PATH（在那里 ninja --version 应有输出）；pdsh 和 sudo "
        "会丢掉它",
    ),
)


class OpBuildNinjaMissing(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """An operator to be compiled, and neither the program ninja nor its package."""
        if not environment.ninja.absent or environment.has("ninja") is not False:
            return
        built = operators(run)
        if not built:
            return
        names = ", ".join(one.name for one in built)
        yield self.finding(
            Text(
                "DeepSpeed compiles {names} when the run starts, and there is no ninja: neither the package nor the "
                "program.",
                "训练启动时 DeepSpeed 要编译 {names}，而这里既没有 ninja 包也没有 ninja 程序。",
            ).format(names=names),
            certainty=Certainty.LIKELY,
            cure=_CURE[:1],
            spans=tuple(one.span for one in built),
            confirm=NOT_PREBUILT.format(names=names),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """PyTorch's words; else, last among the reasons, an unexplained build that ninja may never have begun."""
        if evidence := first(log, _MISSING):
            yield self.log_finding(
                evidence,
                Text(
                    "PyTorch builds extensions with the program ninja, and the process does not find it.",
                    "PyTorch 用 ninja 程序编译扩展，而该进程找不到它。",
                ),
                cure=_CURE,
            )
        elif (evidence := unexplained_build(log)) and log.find(_NINJA_RAN) is None:
            yield self.log_finding(
                evidence,
                Text(
                    "A DeepSpeed operator was not built; where ninja is missing, the build does not even begin.",
                    "DeepSpeed 算子没有编译成功；缺少 ninja 时编译根本不会开始。",
                ),
                cure=_CURE,
                certainty=Certainty.POSSIBLE,
                severity=Severity.WARNING,  # the rarest of the reasons: it stands after the others
                confirm=(FIND_THE_ERROR, Text('It then says "Ninja is required".', "此时会显示 “Ninja is required”。")),
            )
