from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.collective._store_barrier import joined_at_store
from gonogo.hazards.rule import Certainty, Findings, Hazard, Text


class ProcessGroupJoinedByTooMany(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """A barrier at the store that counts more processes than the world has."""
        barrier = next((one for one in joined_at_store(log) if one.joined > one.world), None)
        if barrier is None:
            return
        yield self.log_finding(
            barrier.evidence,
            Text(
                "{joined} processes have registered for a group of {world}. It waits for exactly {world}, which will "
                "not come again.",
                "已有 {joined} 个进程登记加入 {world} 个 rank 的进程组。它要等到恰好 {world} 个，而这不会再出现。",
            ).format(joined=barrier.joined, world=barrier.world),
            certainty=Certainty.LIKELY,
            cure=(
                Text(
                    "Start one launcher a node, and let only it or the script start the ranks, not both (srun's tasks "
                    "and "
                    "mp.spawn, torchrun on every task)",
                    "每个节点只启动一个启动器，rank 由它或脚本其一来启动，不要两者都启动（srun 的任务加 "
                    "mp.spawn，每个任务都运行 "
                    "torchrun）",
                ),
                Text(
                    "Remove the file of init_method='file://…' before each run, or use env://; take another "
                    "--master_port "
                    "for another run",
                    "每次运行前删除 init_method='file://…' 的文件，或改用 env://；另一个任务使用别的 --master_port",
                ),
                Text(
                    "If workers were restarted, look at what the first one died of",
                    "若 worker 被重启过，请看最先退出的那个的原因",
                ),
            ),
            confirm=Text(
                "ps shows more processes of the program than the world size, or the file of an earlier run is there",
                "ps 显示该程序的进程数多于 world size，或上一次运行的文件仍在",
            ),
        )
