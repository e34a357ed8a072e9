from gonogo.hazards.facts.training_script import DDP, mentions
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Refusal, Run, Script, Text

# What makes a process group, by itself or within.
_MAKES = (
    *(b"init_process_group", b"init_dist", b"dist_init", b"setup_dist", b"init_device_mesh", b"init_parallel"),
    *(
        b"accelerate",
        b"Trainer",
        b"lightning",
        b"fabric",
        b"deepspeed",
        b"mmcv",
        b"mmengine",
        b"horovod",
        b"colossalai",
    ),
    *(b"detectron", b"fairseq", b"megatron", b"composer", b"smdistributed", b"ray.train", b"setup(", b"ddp_setup"),
)


class DdpWithoutProcessGroup(Hazard):
    """DistributedDataParallel in a project that never makes a process group.
    ## What happens
    "ValueError: Default process group has not been initialized, please make sure to call init_process_group." when the
    model is wrapped.
    ## Why
    torchrun only starts the processes and sets their variables; the group is made by `init_process_group` in each of
    them.
    ## Example
    ```python
    model = DistributedDataParallel(model)                 # wrong: no process group has been made

    torch.distributed.init_process_group("nccl")           # right: made before the model is wrapped
    model = DistributedDataParallel(model)
    ```
    ## Cure
    `torch.distributed.init_process_group("nccl")` and `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before
    the model is wrapped.
    ## When it is safe
    Where a library that the script uses makes the group (accelerate, Lightning, DeepSpeed, mmengine).
    ## Sources
    - https://github.com/openvla/openvla/pull/78: the missing call before DDP
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html: DDP needs the
    process group
    """

    name = "ddp-without-process-group"
    raises = True
    title = Text(
        "DistributedDataParallel is used and nothing makes a process group",
        "使用了 DistributedDataParallel，却没有创建进程组",
    )
    refusal = Refusal(Pattern(r"Default process group has not been initialized"), Certainty.POSSIBLE)

    def in_script(self, script: Script, run: Run) -> Findings:
        """DDP without a guard, and none of the words that make a group in the run's scripts."""
        if b"DistributedDataParallel" not in script.source.data or run.launch is None or not run.scripts:
            return
        if mentions(run, script, *_MAKES):
            return
        for call in script.calls(DDP):
            if script.guarded_by(call.node):
                continue
            yield self.finding(
                Text(
                    "The model is wrapped in DDP, and none of the run's files calls init_process_group.",
                    "模型用 DDP 包装，而本次运行的所有文件都没有调用 init_process_group。",
                ),
                certainty=Certainty.LIKELY,
                cure=Text(
                    'Before it: torch.distributed.init_process_group("nccl")',
                    '在此之前调用 torch.distributed.init_process_group("nccl")',
                ),
                spans=call.place.span(),
            )
