from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Text

_CANCELLED = Pattern(r"slurmstepd: error: .*CANCELLED AT \S+ DUE TO (?P<why>TIME LIMIT|PREEMPTION|NODE FAILURE)")
_ACCOUNT = Pattern(r"^\s*\d+(?:_\d+)?(?:\.\w+)?\s.*\b(?P<why>TIMEOUT|NODE_FAIL|PREEMPTED|BOOT_FAIL|DEADLINE)\b")
_TOLD = {
    "TIME LIMIT": (
        Text("its time limit was reached", "到达时间上限"),
        Text(
            "Ask for more time (#SBATCH --time), or save checkpoints in time and continue from "
            "them: --signal=B:USR1@300 "
            "and a handler that saves and submits anew",
            "申请更长时间（#SBATCH --time），或及时保存 checkpoint 并续训：--signal=B:USR1@300，由程序保存并重新提交",
        ),
    ),
    "PREEMPTION": (
        Text("a job of higher priority took its place", "被更高优先级的作业抢占"),
        Text(
            "Submit it with --requeue, and let it resume from its last checkpoint; or use a queue without preemption",
            "用 --requeue 提交并从最近的 checkpoint 续训；或使用不会抢占的队列",
        ),
    ),
    "NODE FAILURE": (
        Text("a node of it failed or did not answer", "某个节点出现故障或无响应"),
        Text(
            "Submit it anew without that node (--exclude), from the last checkpoint; tell those who run the cluster",
            "排除该节点（--exclude）后从最近的 checkpoint 重新提交，并告知集群管理员",
        ),
    ),
}
_SAME = {
    "TIMEOUT": "TIME LIMIT",
    "DEADLINE": "TIME LIMIT",
    "PREEMPTED": "PREEMPTION",
    "NODE_FAIL": "NODE FAILURE",
    "BOOT_FAIL": "NODE FAILURE",
}


class JobEndedByScheduler(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """Slurm's own line about it, or the job's state in what ``sacct`` prints."""
        found = log.find(_CANCELLED)
        if found is None and log.has("JobID"):
            found = log.find(_ACCOUNT)
        if found is None:
            return
        why, cure = _TOLD[_SAME.get(found.match.group("why"), found.match.group("why"))]
        yield self.log_finding(
            found,
            Text("Slurm ended the job: {why}.", "Slurm 结束了该作业：{why}。").format(why=why),
            cure=cure,
            certainty=Certainty.LIKELY,
            confirm=Text(
                "Training continued until then: a run that hung before has another cause",
                "在此之前训练一直在推进：若早已卡住，则另有原因",
            ),
        )
