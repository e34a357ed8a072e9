from gonogo.hazards.facts.training_script import several_a_node
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Run, Severity, Text


class GpusOfUnequalMemory(Hazard):
    """The ranks of a node run on GPUs of unequal memory.
    ## What happens
    The rank on the smallest card runs out of memory while the others have room; or all wait for the slowest.
    ## Why
    DDP and ZeRO give each rank the same share of states and the same micro-batch, whatever its card has.
    ## Example
    ```sh
    torchrun --nproc_per_node 4 train.py    # wrong: GPU 3 has 24 GiB, the others 80
    CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nproc_per_node 3 train.py    # right
    ```
    ## Cure
    Leave the smaller cards out with CUDA_VISIBLE_DEVICES, or size the batch for the smallest.
    ## When it is safe
    Where the batch fits into the smallest card and its speed will do.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/4402: 16 GB and 32 GB cards: DeepSpeed divides evenly
    - https://github.com/Tencent/TencentPretrain/issues/98: the same question for pre-training
    """

    name = "gpus-of-unequal-memory"
    title = Text("GPUs of unequal memory: the smallest sets the limit", "GPU 显存不等：以最小的为限")

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Cards whose memory differs by more than a tenth, all of them in use."""
        sizes = [gpu.memory for gpu in environment.gpus if gpu.memory]
        launch = run.launch
        if launch is None or len(sizes) < 2 or len(sizes) != len(environment.gpus) or not several_a_node(run):
            return
        smallest, largest = min(sizes), max(sizes)
        used = launch.processes_per_node.number
        if smallest * 1.1 >= largest or not launch.visible_devices.absent or used != len(sizes):
            return
        names = " + ".join(dict.fromkeys(gpu.name for gpu in environment.gpus))
        yield self.finding(
            Text(
                "{count} ranks on {names}: each gets the same share and the same micro-batch, so that the {small:.0f} "
                "GiB of the smallest are the limit of all, and {rest:.0f} GiB are left unused.",
                "{count} 个 rank 使用 {names}：份额与 micro-batch 相同，因此都以最小的 {small:.0f} GiB 为限，共有 "
                "{rest:.0f} GiB 用不上。",
            ).format(
                count=len(sizes),
                names=names,
                small=smallest / 2**30,
                rest=sum(size - smallest for size in sizes) / 2**30,
            ),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=Text(
                "Leave the smaller ones out (CUDA_VISIBLE_DEVICES), or size the batch for them",
                "排除较小的卡（CUDA_VISIBLE_DEVICES），或按它们设置 batch",
            ),
            spans=launch.place.span(),
        )
