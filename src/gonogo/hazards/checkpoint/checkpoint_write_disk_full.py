from gonogo.evidence.field import whole_number
from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.rehearsal.checkpoints.disk_use import disk_need
from gonogo.finding.words import size
from gonogo.hazards.facts.trained_size import billions_of_trained_parameters
from gonogo.hazards.rule import (
    Certainty,
    Environment,
    Findings,
    Hazard,
    Pattern,
    RehearsalRecord,
    Run,
    Severity,
    translated,
)

_WRITE_ERROR_PATTERN = Pattern(
    r"PytorchStreamWriter failed writing|inline_container\.cc:\d+\] ?\. ?unexpected pos|unexpected pos \d+ vs \d+"
    r"|Error while serializing: (?:IoError|I/O error)|StorageFull|basic_ios::clear: iostream error"
    r"|write\(\): (?:fd \d+ failed with )?(?:Input/output error|No space left|Disk quota)"
)
_NO_SPACE_PATTERN = Pattern(
    r"\[Errno (?:28|122)\]|No space left on device|[Dd]isk quota exceeded|磁盘空间不足|os error (?:28|122)\b"
    r"|\[Errno 5\] Input/output error"
)
_QUOTA_PATTERN = Pattern(r"[Dd]isk quota exceeded|\[Errno 122\]")
_SAVE_FRAMES = (
    "torch/serialization.py", "save_checkpoint", "save_pretrained", "safetensors/torch.py", "save_file",
    "serialize_file", "_save", "save_model", "save_state", "checkpoint_engine", "torch.save", "save_16bit_model",
    "save_weights",
)  # fmt: skip
_LOADING_FRAMES = (
    "file_download.py",
    "arrow_writer.py",
    "datasets/builder.py",
    "download",
    "SemLock",
    "load_dataset",
    ".map(",
)
_SAVING_PATTERN = Pattern(r"(?i)sav(?:e|ing)\b.{0,30}(?:checkpoint|model|optimizer)|checkpoint-\d+|global_step\d+|保存")
_OTHER_CONSUMER_PATTERN = Pattern(
    r"/dev/shm|SemLock|NCCL WARN|shared memory|torch_extensions|\.triton|pip install|wandb/|core dump"
)


class CheckpointWriteDiskFull(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A disk too small for one checkpoint of a full fine-tune with DeepSpeed."""
        free = environment.disk_free.number
        arguments = run.arguments
        if free is None or run.launch is None or not run.uses_deepspeed or arguments.get("save_strategy").get() == "no":
            return
        billions = billions_of_trained_parameters(run)
        if billions is None:
            return
        nodes = whole_number(run.launch.nodes) or 1
        bytes_each = 2 if arguments.get("save_only_model").truth else 14
        needed = billions * 1e9 * bytes_each / nodes
        if needed <= free:
            return
        yield self.finding(
            self.texts["cause_in_environment"].format(
                free=free / 1e9, billions=billions, each=bytes_each, needed=needed / 1e9, nodes=nodes
            ),
            severity=Severity.WARNING,
            cure=(translated("Write to a larger volume (--output_dir)"), self.texts["cure"]),
            spans=(arguments.get("output_dir").span() or run.launch.place.span(), environment.disk_free.span()),
            confirm=translated("df -h shows that output_dir is on this disk"),
        )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Checkpoints that need more than the disk that is stated."""
        first = record.first_life or record
        need = disk_need(first) if first.disk_bytes is not None else None
        if need is None or first.disk_bytes is None or need.nbytes <= first.disk_bytes:
            return
        certain = (need.is_exact or need.each_bytes > first.disk_bytes) and first.nodes == 1
        yield self.finding(
            self.texts["cause_in_rehearsal"].format(
                each=size(need.each_bytes),
                copies=need.copies,
                needed=size(need.nbytes),
                free=size(first.disk_bytes),
                fits=first.disk_bytes // need.each_bytes,
            ),
            ranks=tuple(rank.rank for rank in record.ranks),
            certainty=Certainty.CERTAIN if certain else Certainty.LIKELY,
            cure=self.page.cures,
            confirm=() if certain else self.texts["confirm"],
        )

    def in_log(self, log: FailureLog) -> Findings:
        """Errors of the writers, or a full disk while saving a checkpoint; not /dev/shm, a cache or a download."""
        evidence, certainty = _find_evidence(log)
        if evidence is None:
            return
        if is_outside_training(log):
            certainty = Certainty.POSSIBLE
        quota = log.find(_QUOTA_PATTERN) is not None
        yield self.log_finding(
            evidence,
            self.texts["cause_in_log"].format(
                what=translated("the quota on the output volume is used up")
                if quota
                else translated("the output volume is full (or its quota, or the network storage failed)")
            ),
            certainty=certainty,
            confirm=self.texts["confirm"],
        )


def _find_evidence(log: FailureLog) -> tuple[LoggedError | LineMatch | None, Certainty]:
    if cut := find_truncated_error(
        log, ("torch/serialization.py", "write_record"), ("torch/serialization.py", "write_end_of_file")
    ):
        return cut, Certainty.LIKELY
    if written := next(log.errors_of(says=_WRITE_ERROR_PATTERN), None) or log.find(_WRITE_ERROR_PATTERN):
        return written, Certainty.CERTAIN
    if log.find(_OTHER_CONSUMER_PATTERN) is not None:
        return None, Certainty.POSSIBLE
    for error in log.errors_of(says=_NO_SPACE_PATTERN):
        if error.passes(*_LOADING_FRAMES):
            return None, Certainty.POSSIBLE
        if error.passes(*_SAVE_FRAMES):
            return error, Certainty.CERTAIN
    found = next(log.errors_of(says=_NO_SPACE_PATTERN), None) or log.find(_NO_SPACE_PATTERN)
    if found is None:
        return None, Certainty.POSSIBLE
    return found, Certainty.LIKELY if log.find(_SAVING_PATTERN) else Certainty.POSSIBLE
