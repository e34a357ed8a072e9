import os

from gonogo.evidence.guarded.divergence import divergence
from gonogo.evidence.guarded.ends import unseen
from gonogo.evidence.guarded.standstill import find_hang
from gonogo.evidence.guarded.whereabouts import own_frame, whereabouts
from gonogo.evidence.rehearsal.failures import places
from gonogo.finding.ranks import capital, ranks_text
from gonogo.hazards.rule import Certainty, Findings, GuardedRun, Hazard, Severity, Text

_TRANSPORT = (
    Text(
        "Try the links between the GPUs: NCCL_P2P_DISABLE=1, then NCCL_IB_DISABLE=1, then NCCL_SOCKET_IFNAME set to "
        "the right interface; NCCL_DEBUG=INFO names the path that it chose",
        "逐项排查 GPU 间的通路：NCCL_P2P_DISABLE=1，再 NCCL_IB_DISABLE=1，再把 NCCL_SOCKET_IFNAME 设为正确的网卡；"
        "NCCL_DEBUG=INFO 会写出所选的通路",
    ),
    Text(
        "Run nccl-tests' all_reduce_perf on the same GPUs and nodes: it has to hang as well",
        "在相同的 GPU 与节点上运行 nccl-tests 的 all_reduce_perf：它也应当卡住",
    ),
)


class StepStandsStill(Hazard):
    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """A hang in which nobody is waited for."""
        still = find_hang(run)
        if still is None or still.late or still.silent or unseen(run) or divergence(run) is not None:
            return
        ranks = tuple(sorted(still.stalls))
        frames = still.seen[ranks[0]].frames if ranks[0] in still.seen else ()
        at = own_frame(still.call.frames) if still.call is not None else own_frame(frames)
        known = whereabouts(frames)
        where = Text("{place} in {function}", "{place}（函数 {function}）").format(
            place=f"{os.path.basename(at.path)}:{at.line}" if at is not None else "?",
            function=at.function if at is not None else "?",
        )
        if still.call is not None and run.world_size > 1:
            cause = Text(
                "All ranks have come to the same {operator} (call {index} of its group, from {where}), and it has not "
                "ended for {seconds:.0f} s: what is between the ranks hangs, not one of them.",
                "所有 rank 都已到达同一次 {operator}（该组的第 {index} 次调用，来自 {where}），而它 {seconds:.0f} 秒没"
                "有结束：卡住的是 rank 之间的传输，而不是某个 rank。",
            ).format(operator=still.call.operator, index=still.call.index + 1, where=where, seconds=still.seconds)
        else:
            cause = Text(
                "{ranks} {have} been at {where} for {seconds:.0f} s, not in a collective{doing}.",
                "{ranks} 停在 {where}，已 {seconds:.0f} 秒，不在集合通信中{doing}。",
            ).format(
                ranks=capital(ranks_text(ranks)),
                have="has" if len(ranks) == 1 else "have",
                where=where,
                seconds=still.seconds,
                doing=Text(f": {known.doing.en}", f"：{known.doing.zh}") if known is not None else "",
            )
        look = Text("Look at the line that is named first", "先查看所指的代码行")
        yield self.finding(
            cause,
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING if run.exit_status in (None, 0) else Severity.ERROR,
            cure=_TRANSPORT if still.call is not None else (known.cure if known and known.cure else look,),
            spans=places((at, Text("the ranks stand here", "各 rank 停在这里"))),
            ranks=ranks,
            confirm=Text(
                "py-spy dump of every rank shows the same lines minutes later",
                "几分钟后对每个 rank 执行 py-spy dump，仍显示相同的代码行",
            ),
        )
