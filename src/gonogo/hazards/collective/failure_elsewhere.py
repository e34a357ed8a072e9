from gonogo.evidence.log.exit_summary import exits, first_failure
from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.stall import STALL_WORDS, Stall, is_time_out, stall_of
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Text

_CONSEQUENCE = Pattern(
    r"ChildFailedError|Connection closed by (?:remote )?peer|Connection reset by peer|[Bb]roken pipe"
    r"|NCCL communicator was aborted|remote process exited|closing signal SIGTERM|got signal: 15\b"
    r"|Received (?:Signals\.SIGTERM|15) death signal|exits with return code|ProcessExitedException"
    r"|(?:actor is dead because its|A) worker (?:process has )?died\b"
    r"|failed \(exitcode|recvValue failed|failed to recv, got 0 bytes|Some NCCL operations have failed"
)
_TERMINATED = Pattern(r"got signal: 15\b|Received (?:Signals\.SIGTERM|15) death signal")
_MEANINGS = {
    -9: Text("killed (SIGKILL): mostly host memory", "被杀死（SIGKILL）：多为主机内存不足"),
    -11: Text("a segmentation fault", "段错误"),
    -7: Text("a bus error: mostly /dev/shm", "总线错误：多为 /dev/shm 不足"),
    -6: Text("aborted: its own last lines say why, or it gave up waiting", "主动中止：原因在它最后几行，或等待超时"),
    -15: Text("ended by the launcher or the scheduler (SIGTERM)", "被启动器或调度器结束（SIGTERM）"),
    1: Text("a Python error", "Python 异常"),
    2: Text("refused arguments", "参数不被接受"),
}


class FailureElsewhere(Hazard):
    log_words = (
        *STALL_WORDS,
        "Root Cause",
        "roken pipe",
        "by peer",
        "death signal",
        "closing signal",
        "See root cause above",
        "worker process has died",
        "worker died or was killed",
    )

    def in_log(self, log: FailureLog) -> Findings:
        """What a dead rank leaves behind, where no error stands beside it that could be the cause."""
        if any(error.role is Role.ROOT and not is_time_out(error.message) for error in log.errors):
            return
        stall = stall_of(log)
        first = first_failure(log)
        waited = stall.time_outs[0].found if stall and stall.time_outs else None
        left = next((error for error in log.errors if error.role is Role.CASCADE), None)
        evidence = (first.found if first else waited) or left or (stall and stall.by_store) or log.find(_CONSEQUENCE)
        if evidence is None:
            return
        code = next((code for _, code in exits(log)), None)
        if first and first.exit_code is not None:
            code = first.exit_code
        yield self.log_finding(
            evidence,
            Text("{who}{code}{waits}", "{who}{code}{waits}").format(
                who=_who(log, first.rank if first else None, first.host if first else None),
                code=_meaning(code),
                waits=_waits(waited),
            ),
            cure=(
                Text(
                    "Give the logs of all ranks at once (gonogo diagnose FOLDER), or look at the earliest error in "
                    "them; torchrun --log-dir logs --redirects 3 and deepspeed --enable_each_rank_log logs write one a "
                    "rank",
                    "一次给出所有 rank 的日志（gonogo diagnose 目录），或查看其中最早的报错；torchrun --log-dir logs "
                    "--redirects 3 与 deepspeed --enable_each_rank_log logs 可为每个 rank 写一份",
                ),
                Text(
                    "For a timeout without any error: py-spy dump --pid PID on every rank while they wait; a rank "
                    "that is elsewhere than the others is the one",
                    "超时且没有任何报错时：等待期间对每个 rank 执行 py-spy dump --pid PID；与其他 rank 停在不同位置的就"
                    "是问题所在",
                ),
            ),
            certainty=Certainty.POSSIBLE,
            ranks=(first.rank,) if first and first.rank is not None else _waiting(stall),
            confirm=Text("The log of the rank that ended first has the error", "最先退出的 rank 的日志中有真正的报错"),
        )


def _waiting(stall: Stall | None) -> tuple[int, ...]:
    """The ranks that timed out."""
    ranks = {one.found.line.rank for one in stall.time_outs} if stall else set()
    return tuple(sorted(rank for rank in ranks if rank is not None))


def _who(log: FailureLog, rank: int | None, host: str | None) -> Text:
    if rank is not None:
        return Text(
            "torchrun saw rank {rank}{host} fail first: its log has the cause.",
            "torchrun 最先看到 rank {rank}{host}失败：原因在它的日志里。",
        ).format(rank=rank, host=Text(f" on {host}", f"（{host}）") if host else Text("", " "))
    if any(error.type == "KeyboardInterrupt" for error in log.errors):
        return Text(
            "The run was interrupted (Ctrl-C, SIGINT); where it stood then tells at most what it was waiting for.",
            "任务被中断（Ctrl-C，SIGINT）；当时停留的位置最多说明它在等待什么。",
        )
    if log.find(_TERMINATED):
        return Text(
            "The launcher itself was sent SIGTERM: by a scheduler (time limit, preemption), a user, or another node's "
            "launcher.",
            "启动器自身收到了 SIGTERM：来自调度器（时间上限、被抢占）、用户，或另一个节点的启动器。",
        )
    return Text(
        "What stands here is what a rank leaves behind in the others when it dies or falls back; the log does not name "
        "it.",
        "这里只是某个 rank 退出或落后时在其他 rank 中留下的痕迹；日志没有指出是哪一个。",
    )


def _meaning(code: int | None) -> Text:
    if code is None or code not in _MEANINGS:
        return Text("", "")
    return Text(" Exit code {code}: {meaning}.", "退出码 {code}：{meaning}。").format(
        code=code, meaning=_MEANINGS[code]
    )


def _waits(waited: LineMatch | None) -> Text:
    if waited is None:
        return Text("", "")
    return Text(
        " The others waited for it in a collective until the timeout.", "其他 rank 在集合通信中等待它，直到超时。"
    )
