from gonogo.evidence.log.context import REPLICA_ERROR_PATTERN, has_several_processes
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.rehearsal.device_mismatch import device_mismatch
from gonogo.evidence.rehearsal.failures import FailedRanks, failed_ranks, frame_spans, innermost_frame, library_frame
from gonogo.evidence.rehearsal.record import Failure, Frame, RankRecord
from gonogo.hazards.facts.device_map import (
    AUTO_DEVICE_MAPS,
    abbreviate_devices,
    device_map_accelerators,
    local_rank_device_map_edits,
    parameter_devices,
    without_cpu_devices,
)
from gonogo.hazards.facts.mismatch_in_log import LoggedDeviceMismatch, device_mismatches_in_training
from gonogo.hazards.facts.training_script import has_several_processes_per_node, trained_pretrained_calls
from gonogo.hazards.rule import (
    Call,
    Certainty,
    Finding,
    Findings,
    Hazard,
    RehearsalRecord,
    Run,
    Script,
    Severity,
    Text,
    translated,
)

_REFUSED_BY_ACCELERATE = "You can't train a model that has been loaded with `device_map='auto'` in any distributed mode"
_REFUSED_BY_DDP = "DistributedDataParallel device_ids and output_device arguments only work with"


class DeviceMapAutoDistributed(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A model that several processes per node train, loaded with a device map that spreads it.

        ZeRO-3 rejects any device map before this matters: that is another hazard.
        """
        if b"device_map" not in script.source.data or not has_several_processes_per_node(run) or run.zero_stage == 3:
            return
        for trainer, load in trained_pretrained_calls(script):
            given = load.keyword("device_map")
            if given.string in AUTO_DEVICE_MAPS:
                yield self._script_finding(script, run, trainer, load, str(given.value))

    def _script_finding(self, script: Script, run: Run, trainer: Call, load: Call, device_map_value: str) -> Finding:
        assert run.launch is not None
        size = run.launch.processes_per_node.number or run.world_size
        quantized = any(load.passed_keyword(name) is not None for name in _QUANTIZATION_KEYWORDS)
        if quantized:
            edits = local_rank_device_map_edits(script, load)
            title = translated("Give each process its own GPU")
        else:
            edits = (script.removing_keyword(load, "device_map"),)
            title = translated("Drop device_map")
        known = tuple(edit for edit in edits if edit is not None)
        place = load.keyword_place("device_map")
        return self.finding(
            self.texts["script_cause"].format(given=device_map_value, size=size, engine=trainer.method),
            certainty=Certainty.LIKELY if trainer.name == "deepspeed.initialize" else Certainty.CERTAIN,
            cure=self.cures[2:] + self.cures[1:2] if quantized else self.cures,
            spans=(
                place.span() if place is not None else load.place.span(),
                trainer.script.place(trainer.node.func).span(translated("trained here")),
                run.launch.place.span(translated("the launch starts {size} processes per node").format(size=size)),
            ),
            fixes=self.fix(title, *known) if known and len(known) == len(edits) else None,
        )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """An error of accelerate or DDP; a mismatch between accelerators; else a spread model that ran through."""
        explained: set[int] = set()
        for failed in failed_ranks(record):
            if _is_device_map_refusal(failed.failure) or _is_spread_over_accelerators(failed, record):
                explained.update(failed.ranks)
                yield self._build_finding(record, failed.first, failed.ranks, failed.failure)
        spread = [
            rank
            for rank in record.ranks
            if rank.rank not in explained
            and record.world_size > 1
            and len(device_map_accelerators(rank.device_map)) > 1
        ]
        if spread:
            yield self._build_finding(record, spread[0], tuple(rank.rank for rank in spread), None)

    def in_log(self, log: FailureLog) -> Findings:
        """An error of accelerate or DDP; a mismatch between accelerators on one of several ranks."""
        explained = False
        for error in log.errors_of(says=self.patterns["refusal"]):
            devices = parameter_devices(error.message)
            if _REFUSED_BY_DDP not in error.message or len(without_cpu_devices(devices)) > 1:
                explained = True
                yield self._log_finding(error, devices, Certainty.CERTAIN)
        line = None if explained else log.find(self.patterns["refusal"])
        if line is not None:
            following = " ".join(other.text for other in log.lines_after(line.line, 2))
            devices = parameter_devices(f"{line.text} {following}")
            if _REFUSED_BY_DDP not in line.text or len(without_cpu_devices(devices)) > 1:
                explained = True
                yield self._log_finding(line, devices, Certainty.CERTAIN)
        if explained:
            return
        # Among the errors that prepare() itself raises, the device map is the most common cause.
        cut = (
            None
            if log.errors
            else find_truncated_error(log, ("accelerate/accelerator.py", "raise ValueError("), max_frames=1)
        )
        if cut is not None and cut.frames[-1].function == "prepare":
            yield self._log_finding(cut, (), Certainty.POSSIBLE)
        for mismatch in device_mismatches_in_training(log):
            if (
                mismatch.is_between_accelerators
                and not _is_in_data_parallel(mismatch)
                and log.find(REPLICA_ERROR_PATTERN) is None
            ):
                several = has_several_processes(log)
                if several or mismatch.passes(*_DISTRIBUTED_ENGINE_PATHS):
                    yield self._log_finding(mismatch.evidence, tuple(sorted(mismatch.devices)), Certainty.LIKELY)
                elif several is None:
                    yield self._log_finding(mismatch.evidence, tuple(sorted(mismatch.devices)), Certainty.POSSIBLE)

    def _log_finding(
        self, evidence: LoggedError | LineMatch, devices: tuple[str, ...], certainty: Certainty
    ) -> Finding:
        return self.log_finding(
            evidence,
            self.texts["log_cause"].format(
                devices=Text(abbreviate_devices(devices), f" {abbreviate_devices(devices)}")
                if devices
                else translated("several GPUs")
            ),
            certainty=certainty,
            confirm=translated("Look for device_map in the from_pretrained call; print(model.hf_device_map)"),
        )

    def _build_finding(
        self, record: RehearsalRecord, rank: RankRecord, ranks: tuple[int, ...], failure: Failure | None
    ) -> Finding:
        devices = device_map_accelerators(rank.device_map)
        placed: Frame | None = innermost_frame(rank.device_map_frames, "user")
        return self.finding(
            self.texts["rehearsal_cause"].format(
                world=record.world_size,
                devices=abbreviate_devices(devices) if devices else translated("several GPUs"),
                engine="DeepSpeed" if rank.deepspeed_config else "DeepSpeed, DDP, FSDP",
                own=rank.device,
                said=Text(f" It ends with: {failure.message[:300]}", f"最终报错：{failure.message[:300]}")
                if failure
                else translated(" The rehearsal passed, but each GPU would hold layers of every process."),
            ),
            certainty=Certainty.CERTAIN if failure else Certainty.LIKELY,
            severity=Severity.ERROR if failure else Severity.WARNING,
            spans=frame_spans(
                (placed, translated("spread over the GPUs here")),
                (failure.innermost("user") if failure else None, translated("fails here")),
                (library_frame(failure) if failure else None, None),
            ),
            ranks=ranks,
            module=failure.module if failure else None,
        )


_QUANTIZATION_KEYWORDS = ("quantization_config", "load_in_4bit", "load_in_8bit")
_DISTRIBUTED_ENGINE_PATHS = ("torch/nn/parallel/distributed.py", "deepspeed/runtime/engine.py")


def _is_in_data_parallel(mismatch: LoggedDeviceMismatch) -> bool:
    return mismatch.passes("data_parallel.py", "parallel_apply.py", "replicate.py")


def _is_device_map_refusal(failure: Failure) -> bool:
    """Whether accelerate or DDP rejected the model."""
    if _REFUSED_BY_ACCELERATE in failure.message:
        return True
    if _REFUSED_BY_DDP not in failure.message:
        return False
    # The same message with {cpu} or a single device is another hazard: a module that was not moved.
    devices = {f"index={index}" for index in range(64) if f"index={index})" in failure.message}
    return len(devices) > 1


def _is_spread_over_accelerators(failed_group: FailedRanks, record: RehearsalRecord) -> bool:
    """Whether tensors of two accelerators met, with several ranks and a model spread over accelerators."""
    mismatch = device_mismatch(failed_group.failure)
    return (
        record.world_size > 1
        and mismatch is not None
        and mismatch.is_between_accelerators
        and len(device_map_accelerators(failed_group.first.device_map)) > 1
    )
