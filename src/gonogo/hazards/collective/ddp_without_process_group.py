from gonogo.hazards.facts.training_script import DDP, run_mentions
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated

# Calls that create a process group, directly or internally.
_GROUP_CREATION_MARKERS = (
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
    def in_script(self, script: Script, run: Run) -> Findings:
        """Unconditional use of DDP, with no code in the run's scripts that creates a process group."""
        if b"DistributedDataParallel" not in script.source.data or run.launch is None or not run.scripts:
            return
        if run_mentions(run, script, *_GROUP_CREATION_MARKERS):
            return
        for call in script.calls(DDP):
            if script.guarded_by(call.node):
                continue
            yield self.finding(
                translated("The model is wrapped in DDP, but none of the run's files calls init_process_group."),
                spans=call.place.span(),
            )
