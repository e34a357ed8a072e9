from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding.words import size
from gonogo.hazards.memory._logged_shortage import log_words, shortage_in
from gonogo.hazards.rule import Certainty, Findings, Hazard, Text


class GpuHeldByAnotherProcess(Hazard):
    """Another process holds a large part of the GPU that ran out of memory.
    ## What happens
    "CUDA out of memory ... Process 441650 has 30.51 GiB memory in use. Process 449657 has 1022.00 MiB memory in use",
    of which this process has allocated little.
    ## Why
    A job of somebody else's, a run that died and left workers, a notebook's kernel, a server that generates on the same
    GPU; or ranks that share one GPU, since a script takes cuda:0 or CUDA_VISIBLE_DEVICES names it twice.
    ## Example
    ```sh
    vllm serve model & torchrun --nproc_per_node 2 train.py                       # wrong: the server is on GPU 0 too
    CUDA_VISIBLE_DEVICES=2 vllm serve model & CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py    # right
    ```
    ## Cure
    Look who it is (`nvidia-smi`, `fuser -v /dev/nvidia*`), end what is left over, or take other GPUs with
    CUDA_VISIBLE_DEVICES. Where it is the rollout engine: give it less (gpu_memory_utilization), or a GPU of its own.
    ## When it is safe
    Where `nvidia-smi` shows the GPU empty before the run starts.
    ## Sources
    - https://github.com/Alibaba-NLP/ZeroSearch/issues/11: a simulation server on the first GPU
    - https://github.com/vllm-project/vllm-omni/issues/276: 0.49 of 79 GiB free at the start
    - https://docs.pytorch.org/docs/stable/notes/cuda.html#environment-variables: how PyTorch counts
    """

    name = "gpu-held-by-another-process"
    title = Text("Another process holds the GPU's memory", "显存被其他进程占用")
    log_words = log_words
    explains_failure = False

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
                    "Where it is the rollout engine or a server: a GPU of its own, or less gpu_memory_utilization; "
                    "where it is another rank: torch.cuda.set_device(LOCAL_RANK) first",
                    "若是 rollout 引擎或服务：给它单独的 GPU，或调低 gpu_memory_utilization；若是另一个 rank：先执行 "
                    "torch.cuda.set_device(LOCAL_RANK)",
                ),
            ),
            confirm=Text("nvidia-smi lists it before the run starts", "运行开始前 nvidia-smi 就能看到它"),
        )
