from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.collective._store_barrier import joined_at_store
from gonogo.hazards.rule import Certainty, Findings, Hazard, Text


class ProcessGroupJoinedByTooMany(Hazard):
    """More processes register for a process group than it has ranks, and all wait for ever.
    ## What happens
    "Waiting in store based barrier to initialize process group for rank: 0, ... (world_size=2, worker_count=4,
    timeout=0:30:00)" again and again, then "Timed out initializing process group in store based barrier". Newer
    releases write num_workers_joined for worker_count: it is above world_size.
    ## Why
    Every process adds one to a counter in the store and waits until it is exactly the world size. It gets beyond it
    where the store still holds an earlier run's count (a file of `init_method="file://..."` that nobody removed;
    workers that elastic restarted in the same store), where the program is started more often than it thinks (srun -n 2
    and two processes spawned by each; a launcher on every task), or where two runs share one address and port.
    ## Example
    ```sh
    srun -n 2 python spawns_one_process_a_gpu.py     # wrong: four processes, a world of two
    srun -n 1 python spawns_one_process_a_gpu.py     # right: one task a node
    ```
    ## Cure
    Start one launcher a node; remove the init file before each run, or use `env://`; another --master_port for another
    run. After a restart of workers look at what the first of them died of.
    ## When it is safe
    Where the count is below the world size for a while: others are still on their way.
    ## Sources
    - https://github.com/tczhangzhi/pytorch-distributed/issues/18: srun's tasks, each of which spawns
    - https://github.com/epfml/powersgd/issues/21: the init file of an earlier run is still there
    - https://github.com/ultralytics/yolov5/issues/4574: eight have joined four
    - https://github.com/facebookresearch/metaseq/issues/52: three have joined two
    """

    name = "process-group-joined-by-too-many"
    title = Text("More processes join the process group than it has ranks", "加入进程组的进程多于其 rank 数")
    log_words = ("store based barrier",)

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
