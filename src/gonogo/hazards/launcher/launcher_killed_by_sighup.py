from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.role import Role
from gonogo.hazards.facts.shell_lines import is_shell_script
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Pattern, Run, Severity, Text

_SIGHUP = Pattern(
    r"got sig(?:nal|val) ?: ?1\b|Received (?:Signals\.SIGHUP|SIGHUP|1) death signal"
    r"|closing signal (?:Signals\.)?SIGHUP"
    r"|[Ss]ignal 1 \(SIGHUP\)|signals?\.SIGHUP: ?1|\bSIGHUP\b.*(?:received|died|killed)|(?:received|got"
    r"|by) (?:signal )?SIGHUP\b"
)
_IN_BACKGROUND = Pattern(r"^[^&]*(?:>&\d|\d>&\d|&>{1,2})?[^&]*[^&>]&[ \t]*(?:$|[;#)]|\w)")
_KEPT = Pattern(r"\bsetsid\b|\btmux\b|\bscreen -|\bdisown\b|^[ \t]*wait\b|\bsystemd-run\b")


class LauncherKilledBySighup(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """torchrun, or what calls it, under nohup; a launch in the background of the shell."""
        if not is_shell_script(launch.source) or launch.launcher in ("python", "srun", "mpirun") or launch.slurm:
            return
        under_nohup = bool(launch.words) and launch.words[0].value == "nohup"
        line = launch.source.data[launch.place.end :].partition(b"\n")[0]
        tail = line.decode("utf-8", "replace")
        behind = _IN_BACKGROUND.search(tail) is not None
        if not behind or _KEPT.search(launch.source.text) is not None:
            return
        elastic = launch.launcher in ("torchrun", "torch.distributed.launch", "accelerate", "swift", "llamafactory")
        if under_nohup and not elastic:
            return
        yield self.finding(
            Text(
                "{launcher} runs in the background of the shell that starts it: when that terminal closes, it may be "
                "sent SIGHUP and end the run{nohup}.",
                "{launcher} 在启动它的 shell 的后台运行：该终端关闭时它可能收到 SIGHUP，从而结束训练{nohup}。",
            ).format(
                launcher=launch.launcher,
                nohup=Text(
                    "; nohup does not keep it, for torchrun installs its own handler for SIGHUP",
                    "；nohup 保护不了它，因为 torchrun 会为 SIGHUP 安装自己的处理函数",
                )
                if under_nohup
                else "",
            ),
            certainty=Certainty.POSSIBLE,
            severity=Severity.NOTE,
            cure=Text(
                "Start it in tmux or screen, or with setsid: setsid {launcher} ... > log 2>&1 < /dev/null &",
                "在 tmux 或 screen 中启动，或用 setsid：setsid {launcher} ... > log 2>&1 < /dev/null &",
            ).format(launcher=launch.launcher),
            spans=launch.place.span(),
            confirm=Text("The script is started from an interactive terminal", "脚本从交互式终端启动"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The launcher's own words that it was sent signal 1."""
        found = log.find(_SIGHUP)
        if found is None:
            return
        # Rich and logging fail too when the terminal is gone; what failed before is the workers' own.
        before = any(
            error.role is Role.ROOT and error.raised.at.number < found.line.number and error.type != "OSError"
            for error in log.errors
        )
        yield self.log_finding(
            found,
            Text(
                "The launcher was sent SIGHUP (signal 1): the terminal or the SSH session that started it ended. It "
                "stopped the workers, which had not failed.",
                "启动器收到 SIGHUP（信号 1）：启动它的终端或 SSH 会话结束了。它随后停止了并未出错的 worker。",
            ),
            cure=(
                Text(
                    "Start the run inside tmux or screen, or with: setsid COMMAND > train.log 2>&1 < /dev/null &",
                    "在 tmux 或 screen 中启动，或：setsid 命令 > train.log 2>&1 < /dev/null &",
                ),
                Text(
                    "nohup alone does not suffice for torchrun; add disown: nohup COMMAND & disown",
                    "对 torchrun 只用 nohup 不够，需再加 disown：nohup 命令 & disown",
                ),
                Text("Resume from the last checkpoint", "从最近的 checkpoint 恢复训练"),
            ),
            certainty=Certainty.LIKELY if before else Certainty.CERTAIN,
            confirm=Text(
                "The time of the signal is that of a lost connection or a closed window",
                "收到信号的时间与连接断开或窗口关闭的时间一致",
            ),
        )
