import signal

from gonogo.evidence.guarded.ends import (
    RankDeath,
    rank_file_span,
    ranks_have_different_models,
    root_deaths,
    signal_name,
)
from gonogo.evidence.guarded.guarded_run import GuardedRank
from gonogo.evidence.guarded.whereabouts import innermost_user_frame
from gonogo.evidence.rehearsal.failures import frame_spans
from gonogo.finding.words import PHASES, size
from gonogo.hazards.rule import Certainty, Findings, GuardedRun, Hazard, Span, Text, translated

_SIGNAL_MEANINGS = {
    signal.SIGKILL: translated(
        "Nothing in the program sends this signal: it came from the kernel for lack of host memory, from a "
        "scheduler's limit, or from a person"
    ),
    signal.SIGSEGV: translated(
        "Native code accessed invalid memory: suspect a library built for another version, or the driver"
    ),
    signal.SIGBUS: translated("File-backed memory could not be obtained: usually /dev/shm is full"),
    signal.SIGABRT: translated(
        "Native code aborted: its last line on standard error says why (an assertion, NCCL's watchdog)"
    ),
}
_CURES = {
    signal.SIGKILL: (
        translated(
            "Check the kernel log: dmesg -T | grep -i -E 'killed process|oom'; in a container, memory.events "
            "of its cgroup"
        ),
        translated("Ask the scheduler: sacct -j JOB --format=State,ExitCode,MaxRSS, or the pod's last state"),
    ),
    signal.SIGBUS: (
        translated(
            "Give the container more shared memory (docker run --shm-size=16g), or use fewer DataLoader workers"
        ),
    ),
}
_FAULTHANDLER_CURE = (
    translated("Run again with PYTHONFAULTHANDLER=1: the Python line that called native code is then printed"),
)
_NATIVE_CODE_CURE = (
    translated(
        "Start at the first place named: the Python line that called native code; compare the versions of "
        "that library, of torch and of the driver"
    ),
)
_EXIT_STATUS_CURE = (translated("Look for sys.exit() or os._exit() in the program: it exited without an exception"),)


class RankKilled(Hazard):
    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """The first rank that ended by a signal, a bare exit status, or without a trace."""
        for death in root_deaths(run)[:1]:
            rank = run.rank(death.rank)
            if death.how == "exception" or rank is None:
                return
            if death.signal == signal.SIGABRT and ranks_have_different_models(run):
                return  # gloo and NCCL abort if sizes differ: the difference is the cause
            number = death.signal
            known = signal.Signals(number) if number in {one.value for one in signal.Signals} else None
            native = _NATIVE_CODE_CURE if rank.dump is not None else _FAULTHANDLER_CURE
            cure = (
                _EXIT_STATUS_CURE
                if death.how == "status"
                else _CURES.get(known, native)
                if known
                else _CURES[signal.SIGKILL]
            )
            yield self.finding(
                Text("{how} {last}{means}", "{how}{last}{means}").format(
                    how=_describe_cause(death), last=_last_seen_text(rank), means=_describe_signal(known)
                ),
                title=Text("Rank {rank} {what}", "rank {rank} {what}").format(
                    rank=death.rank, what=_describe_end(death)
                ),
                certainty=Certainty.CERTAIN if death.how != "vanished" else Certainty.LIKELY,
                cure=cure,
                spans=(*_last_known_place(rank), rank_file_span(rank)),
                ranks=(death.rank,),
            )


def _last_known_place(rank: GuardedRank) -> tuple[Span, ...]:
    """The last position of the main thread, from the stack dump written at the signal."""
    frames = rank.dump.threads[0].frames if rank.dump is not None and rank.dump.threads else ()
    return frame_spans((innermost_user_frame(frames), translated("the rank was here")))


def _describe_end(death: RankDeath) -> Text:
    if death.signal is not None:
        name = signal_name(death.signal)
        return Text(f"was ended by {name}", f"被 {name} 结束")
    if death.status is not None:
        return Text(f"ended with status {death.status}", f"以状态码 {death.status} 结束")
    return translated("disappeared")


def _describe_cause(death: RankDeath) -> Text:
    if death.signal is not None:
        return translated("The process of rank {rank} was terminated by {name}.").format(
            rank=death.rank, name=signal_name(death.signal)
        )
    if death.status is not None:
        return translated("The process of rank {rank} exited with status {status}, without an exception.").format(
            rank=death.rank, status=death.status
        )
    return translated("The process of rank {rank} is gone, with no record of how it ended.").format(rank=death.rank)


def _last_seen_text(rank: GuardedRank) -> Text:
    beat = rank.beat
    step = rank.last_step
    memory = rank.steps[-1] if rank.steps else None
    return translated("The rank was last seen {phase}after step {step}{memory}.").format(
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


def _describe_signal(death_signal: signal.Signals | None) -> Text:
    text = _SIGNAL_MEANINGS.get(death_signal) if death_signal is not None else None
    return Text(f" {text.en}.", f"{text.zh}。") if text is not None else Text("", "")
