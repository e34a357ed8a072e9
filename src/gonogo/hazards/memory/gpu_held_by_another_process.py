from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding.words import size
from gonogo.hazards.memory._logged_shortage import shortage_in
from gonogo.hazards.rule import Certainty, Findings, Hazard, Text


class GpuHeldByAnotherProcess(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """An out-of-memory error whose list of processes shows another with a large part."""
        short = shortage_in(log)
        if short is None or not short.others or not short.capacity or short.others < 0.4 * short.capacity:
            return
        yield self.log_finding(
            short.evidence,
            Text("{sizes}. Other processes held {others} of it.", "{sizes}。其中 {others} 由其他进程占用。").format(
                sizes=short.sizes, others=size(short.others)
            ),
            certainty=Certainty.LIKELY,
            cure=(
                Text(
                    "nvidia-smi says who: end what an earlier run left, or take other GPUs (CUDA_VISIBLE_DEVICES)",
                    "用 nvidia-smi 查看是谁：结束之前运行的残留进程，或换用其他 GPU（CUDA_VISIBLE_DEVICES）",
                ),
                Text(
                    "If it is the rollout engine or a server: its own GPU, or less gpu_memory_utilization; "
                    "where it is another rank: torch.cuda.set_device(LOCAL_RANK) first",
                    "若是 rollout 引擎或服务：给它单独的 GPU，或调低 gpu_memory_utilization；若是另一个 rank：先执行 "
                    "torch.cuda.set_device(LOCAL_RANK)",
                ),
            ),
            confirm=Text("nvidia-smi lists it before the run starts", "运行开始前 nvidia-smi 就能看到它"),
        )
