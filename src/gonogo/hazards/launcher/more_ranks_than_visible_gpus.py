from gonogo.evidence.field import whole_number
from gonogo.evidence.log.context import has_several_processes, is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.rehearsal.failures import FailedRanks, failed_ranks, failure_places
from gonogo.hazards.facts.duplicate_gpu import find_duplicate_gpu, processes_per_node, visible_gpu_count
from gonogo.hazards.facts.launch_facts import TORCHRUN, accelerate_setting, slurm_number, visible_gpus
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Pattern, RehearsalRecord, Run, Text, translated

_ASKED_FOR_PATTERN = Pattern(r"device (\d{1,4}) was asked for")
_INVALID_ORDINAL_PATTERN = Pattern(
    r"CUDA error: invalid device ordinal|invalid device ordinal|But your machine only has"
)
_RANK_DEVICE_PATTERN = Pattern(r"(?i)local_?rank|\brank\b|gpu_?id|\bself\.device\b|set_device")
_HARDCODED_DEVICE_PATTERN = Pattern(r"cuda:\d|\.cuda\(\s*\d|set_device\(\s*(?:[\"']cuda:)?\d")
_SET_DEVICE_CALLS = (
    ("accelerate/state.py", "cuda.set_device("),
    ("transformers/training_args.py", "cuda.set_device("),
    ("torch/cuda/__init__.py", "_cuda_setDevice("),
)
_PER_NODE_OPTIONS = ("nproc_per_node", "num_gpus", "num_accelerators")
_PROCESS_COUNT_OPTIONS = (*_PER_NODE_OPTIONS, "num_processes", "include")
_CONFIRM = (
    translated(
        "nvidia-smi -L (or CUDA_VISIBLE_DEVICES) lists fewer GPUs than the number of processes that the "
        "launch starts on this machine"
    ),
)


class MoreRanksThanVisibleGpus(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """An invalid ordinal when one of several processes sets its own device, not one named in the script."""
        for failed in failed_ranks(record):
            failure = failed.failure
            if "invalid device ordinal" not in failure.message or not _uses_local_rank(failed):
                continue
            yield self.finding(
                self.texts["cause_in_rehearsal"].format(count=record.ranks_per_node, local=failed.first.local_rank),
                spans=failure_places(failure),
                ranks=failed.ranks,
            )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """More processes per node than GPUs in CUDA_VISIBLE_DEVICES or requested from Slurm."""
        if launch.launcher not in (*TORCHRUN, "deepspeed", "accelerate", "swift", "llamafactory"):
            return
        processes = whole_number(launch.processes_per_node)
        if processes is None:
            return
        options = launch.launcher_options
        counted = next((name for name in _PROCESS_COUNT_OPTIONS if options.place_of(name)), None)
        written = (counted and options.place_of(counted)) or launch.processes_per_node.place or launch.place
        visible, given = visible_gpus(launch), slurm_number(launch, "gpus-per-node")
        overridden = launch.launcher == "deepspeed" or _has_explicit_gpu_ids(launch, run)
        if visible is not None and not overridden and visible != ["-1"] and len(visible) < processes:
            field, gpus = launch.visible_devices, len(visible)
            shows = f"CUDA_VISIBLE_DEVICES={field.value}"
            has = Text(f"{shows} shows {gpus} GPU(s)", f" {shows} 只有 {gpus} 张 GPU")
        elif given is not None and given < processes:
            field, gpus = launch.slurm["gpus-per-node"], given
            has = Text(f"the job asks slurm for {gpus} GPU(s) a node", f"作业每个节点只向 slurm 申请了 {gpus} 张 GPU")
        else:
            return
        yield self.finding(
            self.texts["cause_in_launch"].format(launcher=launch.launcher, processes=processes, gpus=gpus, has=has),
            certainty=Certainty.LIKELY if field.reason is not None else Certainty.CERTAIN,
            cure=translated("Start {gpus} processes per node{option}, or give the run {processes} GPUs").format(
                gpus=gpus,
                processes=processes,
                option=Text(f" (--{counted} {gpus})", f"（--{counted} {gpus}）")
                if counted in _PER_NODE_OPTIONS
                else "",
            ),
            spans=(
                written.span(Text(f"{processes} processes", f"{processes} 个进程")),
                field.span(Text(f"{gpus} GPU(s)", f"{gpus} 张 GPU")),
            ),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """An invalid ordinal when a rank sets its device, or ranks that share a GPU because there are too few."""
        processes, gpus = processes_per_node(log), visible_gpu_count(log)
        counts = translated(" The launch starts {processes} on this machine, but {gpus} GPU(s) are visible.").format(
            processes=processes, gpus=gpus
        )
        too_many = None if processes is None or gpus is None else processes > gpus
        known = too_many is not None
        if duplicate := find_duplicate_gpu(log):
            certainty = Certainty.POSSIBLE
            if duplicate.too_many_ranks:
                certainty = Certainty.CERTAIN if known else Certainty.LIKELY
            yield self.log_finding(
                duplicate.evidence,
                self.texts["cause_in_log"].format(ranks=duplicate.rank_list, counts=counts if known else ""),
                certainty=certainty,
                confirm=_CONFIRM,
            )
            return
        evidence = (
            next(log.errors_of(says=self.patterns["invalid_device"]), None)
            or log.find(self.patterns["invalid_device"])
            or find_truncated_error(log, *_SET_DEVICE_CALLS)
        )
        if evidence is None:
            return
        yield self.log_finding(
            evidence,
            translated("A rank uses the GPU whose number is its local rank, but there is no such GPU.{counts}").format(
                counts=counts if known else ""
            ),
            certainty=_certainty_of_too_few_gpus(log, evidence, too_many),
            confirm=_CONFIRM,
        )


def _certainty_of_too_few_gpus(
    log: FailureLog, evidence: LoggedError | LineMatch, exceeds_visible_gpus: bool | None
) -> Certainty:
    text = evidence.message if isinstance(evidence, LoggedError) else evidence.text
    if isinstance(evidence, LoggedError) and not evidence.type:
        return Certainty.POSSIBLE if is_outside_training(log) or exceeds_visible_gpus is False else Certainty.LIKELY
    frame = evidence.last_user_frame or evidence.innermost if isinstance(evidence, LoggedError) else None
    code = frame.code if frame else ""
    if is_outside_training(log) or not _INVALID_ORDINAL_PATTERN.search(text) or _HARDCODED_DEVICE_PATTERN.search(code):
        return Certainty.POSSIBLE
    if exceeds_visible_gpus or (_RANK_DEVICE_PATTERN.search(code) and exceeds_visible_gpus is None):
        return Certainty.CERTAIN
    return (
        Certainty.POSSIBLE if exceeds_visible_gpus is False or has_several_processes(log) is False else Certainty.LIKELY
    )


def _uses_local_rank(failed_group: FailedRanks) -> bool:
    """True if ``set_device`` got the local rank: any other index is named in the script."""
    setting = any("set_device" in f"{frame.function} {frame.text}" for frame in failed_group.failure.frames[-3:])
    requested = _ASKED_FOR_PATTERN.search(failed_group.failure.message)
    own = int(requested.group(1)) == failed_group.first.local_rank if requested else failed_group.first.local_rank > 0
    return setting and own


def _has_explicit_gpu_ids(launch: Launch, run: Run) -> bool:
    """Whether accelerate sets its own choice of GPUs (``gpu_ids``) instead of CUDA_VISIBLE_DEVICES."""
    if launch.launcher != "accelerate":
        return False
    ids = accelerate_setting(launch, run, "gpu_ids")
    return not ids.absent and ids.value != "all"
