from gonogo.evidence.field import whole_number
from gonogo.evidence.log.context import REPLICA_ERROR_PATTERN, is_outside_training, is_single_process_multi_gpu
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.training_arguments import TRAINER_CLASSES
from gonogo.hazards.facts.launch_facts import visible_gpus
from gonogo.hazards.facts.mismatch_in_log import device_mismatches_in_training
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Launch, Pattern, Run, Severity, translated

_FINE_TUNING_PATTERN = Pattern(r"(?i)fine-?_?tun|lora|llama|\bsft\b|微调")
# Errors of DataParallel's replicas that one process per GPU would not have: in dtype, device or shape.
_REPLICA_ERROR_PATTERN = Pattern(
    r"expected scalar type \w+ but found \w+|mat1 and mat2 (?:shapes|must have the same dtype)"
    r"|found at least two devices|different from other tensors on|[Ee]xpected .{0,40}same device"
    r"|arguments are located on different GPUs"
    r"|Input type .{0,60} and (?:weight|bias) type|'NoneType' object has no attribute 'device'|illegal memory access"
    r"|inconsistent tensor size|Gather function not implemented for CPU tensors|CUBLAS|must be on the current device"
)
_SHAPES_PATTERN = Pattern(
    r"mat1 and mat2 shapes cannot be multiplied \((?P<rows>\d+)x(?P<a>\d+) and (?P<b>\d+)x(?P<c>\d+)\)"
)
_SHAPE_ERROR_WITHOUT_SHAPES_PATTERN = Pattern(r"(?i)mat1 and mat2 shapes cannot be multiplied\W*$")
_MODEL_SPLIT_WORDS = (b"device_map", b"CUDA_VISIBLE_DEVICES", b"is_parallelizable")
_USER_ERROR_TYPES = ("OutOfMemoryError", "KeyError", "ValueError", "TypeError", "AttributeError", "IndexError")


class DataparallelPlainPythonMultiGpu(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Plain python with several visible GPUs, and a Trainer whose model has no device_map."""
        visible = visible_gpus(launch) if launch.launcher == "python" else None
        if visible is None or len(visible) < 2 or (whole_number(launch.world_size) or 1) > 1 or run.uses_deepspeed:
            return
        for script in run.scripts:
            if any(word in script.source.data for word in _MODEL_SPLIT_WORDS):
                return
        for script in run.scripts:
            call = next(script.calls(*TRAINER_CLASSES), None)
            if call is None:
                continue
            quantized = any(
                next(one.calls("transformers.BitsAndBytesConfig", "peft.get_peft_model"), None) for one in run.scripts
            )
            yield self.finding(
                self.texts["cause_in_launch"].format(
                    count=len(visible),
                    visible=",".join(visible),
                    trainer=call.name.rpartition(".")[2],
                    which=translated("whose replicas break adapters and quantized weights")
                    if quantized
                    else translated("which replicates it to every GPU in each step"),
                ),
                severity=Severity.ERROR if quantized else Severity.WARNING,
                cure=(
                    self.texts["cure"].format(count=len(visible)),
                    translated("Or let it see only one GPU: CUDA_VISIBLE_DEVICES={gpu}").format(gpu=visible[0]),
                ),
                spans=(launch.place.span(), launch.visible_devices.span(), call.place.span()),
            )
            return

    def in_log(self, log: FailureLog) -> Findings:
        """DataParallel's own errors, or consequences of its replicas if one plain process sees several GPUs."""
        if is_outside_training(log):
            return
        found = self._find_explicit_error(log) or self._find_consequential_error(log)
        if found is not None:
            evidence, certainty = found
            yield self._build_finding(evidence, certainty)

    def _find_explicit_error(self, log: FailureLog) -> tuple[LoggedError | LineMatch, Certainty] | None:
        for error in log.errors_of(says=REPLICA_ERROR_PATTERN):
            caught = REPLICA_ERROR_PATTERN.search(error.message)
            return error, _replica_error_certainty(log, str(caught.group("type")) if caught else "")
        if line := log.find(REPLICA_ERROR_PATTERN):
            return line, _replica_error_certainty(log, str(line.match.group("type")))
        for error in log.errors_of(says=self.patterns["parameters_on_other_device"]):
            of_trainer = (
                not error.frames or error.passes("transformers", "peft", "accelerate") or log.find(_FINE_TUNING_PATTERN)
            )
            return error, Certainty.LIKELY if of_trainer else Certainty.POSSIBLE
        if line := log.find(self.patterns["parameters_on_other_device"]):
            return line, Certainty.LIKELY
        return None

    def _find_consequential_error(self, log: FailureLog) -> tuple[LoggedError | LineMatch, Certainty] | None:
        in_it = [error for error in log.errors if error.passes("parallel/data_parallel.py", "parallel_apply.py")]
        for error in in_it:
            if _REPLICA_ERROR_PATTERN.search(error.message) and error.type != "OutOfMemoryError":
                return error, Certainty.CERTAIN
        plain = is_single_process_multi_gpu(log)
        for error in log.errors:
            if (shapes := _SHAPES_PATTERN.search(error.message)) and _are_outlier_column_shapes(shapes.groups()):
                sure = error.passes("bitsandbytes") or not error.frames or plain
                return error, Certainty.LIKELY if sure else Certainty.POSSIBLE
            if plain and (
                self.patterns["dtype_mismatch"].search(error.message) or _SHAPES_PATTERN.search(error.message)
            ):
                return error, Certainty.LIKELY
            if (
                plain is None
                and log.setup.launcher is not None
                and self.patterns["dtype_mismatch"].search(error.message)
            ):
                return error, Certainty.POSSIBLE
        if not log.errors and (
            cut := find_truncated_error(log, ("nn/parallel/", "parallel_apply"), ("nn/parallel/", "in_replica"))
        ):
            return cut, Certainty.LIKELY if plain and cut.passes("transformers/trainer.py") else Certainty.POSSIBLE
        if (
            plain is None
            and not any(error.frames for error in log.errors)
            and (line := log.find(_SHAPE_ERROR_WITHOUT_SHAPES_PATTERN))
        ):
            return line, Certainty.POSSIBLE
        for mismatch in device_mismatches_in_training(log):
            # Frames would show DataParallel; an operator that names its argument suggests device_map.
            if (
                mismatch.is_between_accelerators
                and not mismatch.frames
                and plain is not False
                and not _has_split_model(log)
            ):
                # ms-swift splits the model itself if one process sees several GPUs.
                sure = plain and mismatch.has_only_devices and log.setup.launcher != "swift"
                return mismatch.evidence, Certainty.LIKELY if sure else Certainty.POSSIBLE
        return None

    def _build_finding(self, evidence: LoggedError | LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence, certainty=certainty, confirm=translated("With CUDA_VISIBLE_DEVICES=0 the same command works")
        )


def _replica_error_certainty(log: FailureLog, exception_type: str) -> Certainty:
    """Certain if the replica's own error comes from copying; possible if any program could raise it."""
    if exception_type == "OutOfMemoryError" or log.find(Pattern(r"OutOfMemoryError: |CUDA out of memory")):
        return Certainty.POSSIBLE
    if exception_type == "StopIteration" or log.find(_REPLICA_ERROR_PATTERN) is not None:
        return Certainty.CERTAIN
    if exception_type in _USER_ERROR_TYPES:
        return Certainty.POSSIBLE
    inner = [error for error in log.errors if not REPLICA_ERROR_PATTERN.search(error.message)]
    return Certainty.POSSIBLE if inner and not log.passes("transformers", "peft") else Certainty.LIKELY


def _has_split_model(log: FailureLog) -> bool:
    return log.has("npu_dtype_cast") or log.setup.mentions(r"device_map|device_map_auto")


def _are_outlier_column_shapes(sizes: tuple[str | None, ...]) -> bool:
    """True for the shapes of LLM.int8's outlier columns, which two replicas disagree on: (511x2 and 3x4096)."""
    _, a, b, columns = (int(size or 0) for size in sizes)
    return a != b and a < 512 and b < 512 and columns >= 1024
