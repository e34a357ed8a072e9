import signal

from gonogo.evidence.guarded.ends import Death, name_of_signal, roots, span_of_rank, unlike
from gonogo.evidence.guarded.guarded_run import GuardedRank
from gonogo.evidence.guarded.whereabouts import own_frame
from gonogo.evidence.rehearsal.failures import places
from gonogo.finding.words import PHASES, size
from gonogo.hazards.rule import Certainty, Findings, GuardedRun, Hazard, Span, Text

_MEANS = {
    signal.SIGKILL: Text(
        "Nothing in the program does that: the kernel for lack of host memory, a scheduler's limit, or somebody did",
        "程序自身不会这样做：可能是内核因主机内存不足、调度器的限额，或有人手动杀死",
    ),
    signal.SIGSEGV: Text(
        "Native code touched memory that it may not: a library built for another version, or a driver",
        "原生代码访问了非法内存：与版本不匹配的库，或驱动",
    ),
    signal.SIGBUS: Text(
        "Memory that a file is behind could not be had: mostly /dev/shm is full",
        "映射文件的内存无法取得：多为 /dev/shm 已满",
    ),
    signal.SIGABRT: Text(
        "Native code gave up: its last line on standard error says why (an assertion, NCCL's watchdog)",
        "原生代码主动中止：标准错误的最后一行会说明原因（断言、NCCL watchdog）",
    ),
}
_CURES = {
    signal.SIGKILL: (
        Text(
            "Ask the kernel: dmesg -T | grep -i -E 'killed process|oom'; in a container, memory.events of its cgroup",
            "询问内核：dmesg -T | grep -i -E 'killed process|oom'；容器中查看其 cgroup 的 memory.events",
        ),
        Text(
            "Ask the scheduler: sacct -j JOB --format=State,ExitCode,MaxRSS, or the pod's last state",
            "询问调度器：sacct -j 作业号 --format=State,ExitCode,MaxRSS，或 pod 的 last state",
        ),
    ),
    signal.SIGBUS: (
        Text(
            "Give the container more shared memory (docker run --shm-size=16g), or use fewer DataLoader workers",
            "为容器增加共享内存（docker run --shm-size=16g），或减少 DataLoader 的 worker",
        ),
    ),
}
_NATIVE = (
    Text(
        "Run again with PYTHONFAULTHANDLER=1: the Python line that called native code is then printed",
        "设 PYTHONFAULTHANDLER=1 再运行一次：会打印出调用原生代码的 Python 行",
    ),
)
_AT_THE_PLACE = (
    Text(
        "Start at the first place named: the Python line that was in native code; compare the versions of that "
        "library, of torch and of the driver",
        "从给出的第一个位置查起：当时正执行原生代码的 Python 行；核对该库、torch 与驱动的版本",
    ),
)
_STATUS = (
    Text(
        "Look for sys.exit() or os._exit() in the program: it ended itself without an exception",
        "在程序中查找 sys.exit() 或 os._exit()：它没有抛出异常就自行结束",
    ),
)


class RankKilled(Hazard):
    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """The first rank that ended by a signal, a bare exit status, or without a trace."""
        for death in roots(run)[:1]:
            rank = run.rank(death.rank)
            if death.how == "exception" or rank is None:
                return
            if death.signal == signal.SIGABRT and unlike(run):
                return  # gloo and NCCL abort where sizes do not agree: the difference is the cause
            number = death.signal
            known = signal.Signals(number) if number in {one.value for one in signal.Signals} else None
            native = _AT_THE_PLACE if rank.dump is not None else _NATIVE
            cure = _STATUS if death.how == "status" else _CURES.get(known, native) if known else _CURES[signal.SIGKILL]
            yield self.finding(
                Text("{how} {last}{means}", "{how}{last}{means}").format(
                    how=_how(death), last=_last(rank), means=_means(known)
                ),
                title=Text("Rank {rank} {what}", "rank {rank} {what}").format(rank=death.rank, what=_what(death)),
                certainty=Certainty.CERTAIN if death.how != "vanished" else Certainty.LIKELY,
                cure=cure,
                spans=(*_stood(rank), span_of_rank(rank)),
                ranks=(death.rank,),
            )


def _stood(rank: GuardedRank) -> tuple[Span, ...]:
    """Where its main thread was, by the dump that Python left as the signal came."""
    frames = rank.dump.threads[0].frames if rank.dump is not None and rank.dump.threads else ()
    return places((own_frame(frames), Text("it was here", "当时位于这里")))


def _what(death: Death) -> Text:
    if death.signal is not None:
        name = name_of_signal(death.signal)
        return Text(f"was ended by {name}", f"被 {name} 结束")
    if death.status is not None:
        return Text(f"ended with status {death.status}", f"以状态码 {death.status} 结束")
    return Text("disappeared", "消失了")


def _how(death: Death) -> Text:
    if death.signal is not None:
        return Text("The process of rank {rank} was ended by {name}.", "rank {rank} 的进程被 {name} 结束。").format(
            rank=death.rank, name=name_of_signal(death.signal)
        )
    if death.status is not None:
        return Text(
            "The process of rank {rank} ended itself with status {status}, without an exception.",
            "rank {rank} 的进程以状态码 {status} 自行结束，没有抛出异常。",
        ).format(rank=death.rank, status=death.status)
    return Text(
        "The process of rank {rank} is gone, and left no word of its end.",
        "rank {rank} 的进程已消失，没有留下任何结束记录。",
    ).format(rank=death.rank)


def _last(rank: GuardedRank) -> Text:
    beat = rank.beat
    step = rank.last_step
    memory = rank.steps[-1] if rank.steps else None
    return Text(
        "Last seen {phase}after step {step}{memory}.", "最后一次活动{phase}在第 {step} 步之后{memory}。"
    ).format(
        phase=Text(f"in {PHASES[beat.phase].en}, ", f"处于{PHASES[beat.phase].zh}，")
        if beat is not None and beat.phase in PHASES
        else "",
        step=step,
        memory=Text(
            f", holding {size(memory.host_bytes)} of host memory, with {size(memory.host_available)} left on the "
            "machine",
            f"，占用主机内存 {size(memory.host_bytes)}，机器剩余 {size(memory.host_available)}",
        )
        if memory is not None and memory.host_bytes
        else "",
    )


def _means(known: signal.Signals | None) -> Text:
    text = _MEANS.get(known) if known is not None else None
    return Text(f" {text.en}.", f"{text.zh}。") if text is not None else Text("", "")
