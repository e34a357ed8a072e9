import ast

from gonogo.evidence.log.context import outside_training
from gonogo.hazards.collective._pinned_gpu import bare, never_set, pinned_devices, replacing_pins, setting_device
from gonogo.hazards.facts.duplicate_gpu import PINS_A_DEVICE, DuplicateGpu, duplicate_gpu
from gonogo.hazards.facts.training_script import mentions, several_a_node
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Fix, Hazard, Run, Script, Text

_CURES = (
    Text(
        en="torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) as the first CUDA call; replace 'cuda:0', .cuda(0) "
        "and device='cuda' by that device",
        zh="第一个 CUDA 调用改为 torch.cuda.set_device(int(os.environ['LOCAL_RANK']))；把 'cuda:0'、.cuda(0)、"
        "device='cuda' 换成该设备",
    ),
    Text(en="Do not set CUDA_VISIBLE_DEVICES inside the script", zh="不要在脚本内设置 CUDA_VISIBLE_DEVICES"),
)


class NcclDuplicateGpuHardcodedDevice(Hazard):
    """All ranks use one GPU though there are enough, because the code names it instead of LOCAL_RANK.

    ## What happens
    "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 2000" at the first collective, as
    "ncclInvalidUsage". nvidia-smi shows several processes on one GPU.

    ## Why
    `torch.device("cuda:0")`, `.cuda(0)`, `device="cuda"` before `set_device`, `os.environ["CUDA_VISIBLE_DEVICES"] =
    "0"` inside the script, or no `set_device` at all: every rank lands on the same GPU.

    ## Example
    ```python
    torch.cuda.set_device(0)                               # wrong: the same GPU on every rank
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # right
    ```

    ## Cure
    `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before anything touches CUDA, and no fixed index elsewhere.

    ## When it is safe
    With one process; or where each process sees one GPU only (Slurm's --gpus-per-task), whose index is then 0.

    ## Sources
    - https://github.com/Peterande/D-FINE/issues/289: a default GPU had been written into train.py
    - https://github.com/NVIDIA/Megatron-LM/issues/661: eight ranks on device f000
    """

    name = "nccl-duplicate-gpu-hardcoded-device"
    title = Text(
        en="Several ranks use the same GPU: the code does not take LOCAL_RANK's",
        zh="多个 rank 使用同一张 GPU：代码没有按 LOCAL_RANK 选择设备",
    )
    log_words = ("Duplicate GPU", "Local process index", "Device: ")

    def in_script(self, script: Script, run: Run) -> Findings:
        """A model that is wrapped in DDP on the same GPU by every process of a node."""
        if b"DistributedDataParallel" not in script.source.data or not several_a_node(run):
            return
        backend = _backend(script)
        if backend == "gloo" or mentions(run, script, b"CUDA_VISIBLE_DEVICES", b"accelerate", b"deepspeed"):
            return
        pinned = pinned_devices(script)
        if not pinned and not never_set(script, run):
            return
        assert run.launch is not None
        size = run.launch.processes_per_node.number or run.world_size
        spans = [script.place(node).span() for node, _ in pinned] or [script.place(one).span() for one in bare(script)]
        if not spans:
            return
        yield self.finding(
            Text(
                en="All {size} processes of a node put the model on {device}: NCCL refuses ranks that share a GPU.",
                zh="每个节点的 {size} 个进程都把模型放到 {device}：NCCL 拒绝多个 rank 共用一张 GPU。",
            ).format(
                size=size,
                device=f"GPU {pinned[0][1]}"
                if pinned
                else Text(
                    "GPU 0, since nothing calls torch.cuda.set_device", "GPU 0，因为没有调用 torch.cuda.set_device"
                ),
            ),
            certainty=Certainty.CERTAIN if backend == "nccl" else Certainty.LIKELY,
            cure=_CURES,
            spans=(
                *spans,
                run.launch.place.span(
                    Text("starts {size} processes a node", "每个节点启动 {size} 个进程").format(size=size)
                ),
            ),
            fixes=_fix_of(self, script, pinned),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """NCCL's refusal of a duplicate GPU, unless the ranks are too many for the GPUs."""
        duplicate = duplicate_gpu(log)
        if duplicate is None:
            return
        yield self.log_finding(
            duplicate.evidence,
            Text(
                en="Ranks {ranks} are on one GPU ({device}). With as many GPUs as processes that means that the code "
                "names a device, or sets none, instead of using LOCAL_RANK's.",
                zh="rank {ranks} 在同一张 GPU（{device}）上。若 GPU 数不少于进程数，说明代码写死了设备或没有设置，而没"
                "有使用 LOCAL_RANK 对应的设备。",
            ).format(ranks=duplicate.names, device=duplicate.device or "?"),
            cure=_CURES,
            certainty=_certainty(log, duplicate),
            confirm=(
                Text(
                    en="nvidia-smi -L lists at least as many GPUs as the launch starts processes on this machine",
                    zh="nvidia-smi -L 列出的 GPU 数不少于本机启动的进程数",
                ),
            ),
        )


def _certainty(log: FailureLog, duplicate: DuplicateGpu) -> Certainty:
    if duplicate.too_many_ranks or outside_training(log):
        return Certainty.POSSIBLE
    if log.setup.mentions(PINS_A_DEVICE):
        return Certainty.CERTAIN
    return Certainty.LIKELY


def _backend(script: Script) -> str | None:
    """The backend that the script asks for; "nccl" where it names none, as torch then takes that for GPUs."""
    for call in script.calls("torch.distributed.init_process_group"):
        given = call.argument(0) if call.node.args else call.keyword("backend")
        return "nccl" if given.absent or "nccl" in str(given.value) else given.string
    return None


def _fix_of(hazard: Hazard, script: Script, pinned: list[tuple[ast.AST, int]]) -> tuple[Fix, ...]:
    edits = replacing_pins(script, pinned) if pinned else setting_device(script)
    if not edits:
        return ()
    return (hazard.fix(Text("Take the GPU of the local rank", "使用 local rank 对应的 GPU"), *edits),)
