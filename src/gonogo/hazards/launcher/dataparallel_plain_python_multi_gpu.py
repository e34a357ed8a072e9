from gonogo.evidence.field import whole_number
from gonogo.evidence.log.context import REPLICA, outside_training, plain_on_several_gpus
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.truncated_traceback import cut_in
from gonogo.evidence.training_arguments import TRAINER_CLASSES
from gonogo.hazards.facts.launch_facts import visible_gpus
from gonogo.hazards.facts.mismatch_in_log import mismatches_in
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Launch, Pattern, Run, Severity, translated

_TUNES = Pattern(r"(?i)fine-?_?tun|lora|llama|\bsft\b|微调")
_NOT_ALL_ON_ONE = Pattern(
    r"module must have its parameters and buffers on device \w+:?\d* \(device_ids\[0\]\) but found one of them on"
)
# What DataParallel's copies meet where one process a GPU would not: a dtype, a device, a shape not the model's.
_OF_REPLICAS = Pattern(
    r"expected scalar type \w+ but found \w+|mat1 and mat2 (?:shapes|must have the same dtype)"
    r"|found at least two devices|different from other tensors on|[Ee]xpected .{0,40}same device"
    r"|arguments are located on different GPUs"
    r"|Input type .{0,60} and (?:weight|bias) type|'NoneType' object has no attribute 'device'|illegal memory access"
    r"|inconsistent tensor size|Gather function not implemented for CPU tensors|CUBLAS|must be on the current device"
)
_DTYPES = Pattern(r"expected scalar type (?:Half|Float|BFloat16) but found|mat1 and mat2 must have the same dtype")
_SHAPES = Pattern(r"mat1 and mat2 shapes cannot be multiplied \((?P<rows>\d+)x(?P<a>\d+) and (?P<b>\d+)x(?P<c>\d+)\)")
_SHAPELESS = Pattern(r"(?i)mat1 and mat2 shapes cannot be multiplied\W*$")
_SPLITS = (b"device_map", b"CUDA_VISIBLE_DEVICES", b"is_parallelizable")
_OWN_FAULT = ("OutOfMemoryError", "KeyError", "ValueError", "TypeError", "AttributeError", "IndexError")


class DataparallelPlainPythonMultiGpu(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Plain python with several GPUs visible, and a Trainer that has no device_map to split the model by."""
        visible = visible_gpus(launch) if launch.launcher == "python" else None
        if visible is None or len(visible) < 2 or (whole_number(launch.world_size) or 1) > 1 or run.deepspeed_on:
            return
        for script in run.scripts:
            if any(word in script.source.data for word in _SPLITS):
                return
        for script in run.scripts:
            call = next(script.calls(*TRAINER_CLASSES), None)
            if call is None:
                continue
            quantized = any(
                next(one.calls("transformers.BitsAndBytesConfig", "peft.get_peft_model"), None) for one in run.scripts
            )
            yield self.finding(
                translated(
                    "One python process sees {count} GPUs (CUDA_VISIBLE_DEVICES={visible}): {trainer} runs the model "
                    "in torch.nn.DataParallel, {which}."
                ).format(
                    count=len(visible),
                    visible=",".join(visible),
                    trainer=call.name.rpartition(".")[2],
                    which=translated("whose replicas break adapters and quantized weights")
                    if quantized
                    else translated("which replicates it to every GPU in each step"),
                ),
                certainty=Certainty.LIKELY,
                severity=Severity.ERROR if quantized else Severity.WARNING,
                cure=(
                    translated(
                        "Start one process per GPU: torchrun --nproc_per_node {count} ..., or accelerate launch"
                    ).format(count=len(visible)),
                    translated("Or let it see one GPU: CUDA_VISIBLE_DEVICES={gpu}").format(gpu=visible[0]),
                ),
                spans=(launch.place.span(), launch.visible_devices.span(), call.place.span()),
            )
            return

    def in_log(self, log: FailureLog) -> Findings:
        """DataParallel's own words; what its copies bring about, where one plain process sees several GPUs."""
        if outside_training(log):
            return
        found = self._in_its_own_words(log) or self._in_its_consequences(log)
        if found is not None:
            evidence, certainty = found
            yield self._finding(evidence, certainty)

    def _in_its_own_words(self, log: FailureLog) -> tuple[LoggedError | LineMatch, Certainty] | None:
        for error in log.errors_of(says=REPLICA):
            caught = REPLICA.search(error.message)
            return error, _of_replica(log, str(caught.group("type")) if caught else "")
        if line := log.find(REPLICA):
            return line, _of_replica(log, str(line.match.group("type")))
        for error in log.errors_of(says=_NOT_ALL_ON_ONE):
            of_trainer = not error.frames or error.passes("transformers", "peft", "accelerate") or log.find(_TUNES)
            return error, Certainty.LIKELY if of_trainer else Certainty.POSSIBLE
        if line := log.find(_NOT_ALL_ON_ONE):
            return line, Certainty.LIKELY
        return None

    def _in_its_consequences(self, log: FailureLog) -> tuple[LoggedError | LineMatch, Certainty] | None:
        in_it = [error for error in log.errors if error.passes("parallel/data_parallel.py", "parallel_apply.py")]
        for error in in_it:
            if _OF_REPLICAS.search(error.message) and error.type != "OutOfMemoryError":
                return error, Certainty.CERTAIN
        plain = plain_on_several_gpus(log)
        for error in log.errors:
            if (shapes := _SHAPES.search(error.message)) and _of_outliers(shapes.groups()):
                sure = error.passes("bitsandbytes") or not error.frames or plain
                return error, Certainty.LIKELY if sure else Certainty.POSSIBLE
            if plain and (_DTYPES.search(error.message) or _SHAPES.search(error.message)):
                return error, Certainty.LIKELY
            if plain is None and log.setup.launcher is not None and _DTYPES.search(error.message):
                return error, Certainty.POSSIBLE
        if not log.errors and (cut := cut_in(log, ("nn/parallel/", "parallel_apply"), ("nn/parallel/", "in_replica"))):
            return cut, Certainty.LIKELY if plain and cut.passes("transformers/trainer.py") else Certainty.POSSIBLE
        if plain is None and not any(error.frames for error in log.errors) and (line := log.find(_SHAPELESS)):
            return line, Certainty.POSSIBLE
        for mismatch in mismatches_in(log):
            # Its frames would show DataParallel; device_map is told by an operator that names its argument.
            if mismatch.between_accelerators and not mismatch.frames and plain is not False and not _is_split(log):
                # ms-swift splits the model itself where one process sees several GPUs.
                sure = plain and mismatch.bare and log.setup.launcher != "swift"
                return mismatch.evidence, Certainty.LIKELY if sure else Certainty.POSSIBLE
        return None

    def _finding(self, evidence: LoggedError | LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            translated(
                "A single process sees several GPUs, and Trainer runs the model in torch.nn.DataParallel, whose copies "
                "of the module on the other GPUs don't fit its weights (quantized, adapted, split or cast)."
            ),
            cure=(
                translated(
                    "Start one process per GPU: torchrun --nproc_per_node=N train.py (or accelerate launch, deepspeed; "
                    "FORCE_TORCHRUN=1 for llamafactory-cli; NPROC_PER_NODE=N for swift)"
                ),
                translated("Or let the process see one GPU: CUDA_VISIBLE_DEVICES=0 python train.py"),
            ),
            certainty=certainty,
            confirm=translated("With CUDA_VISIBLE_DEVICES=0 the same command works"),
        )


def _of_replica(log: FailureLog, caught: str) -> Certainty:
    """Certain where the replica's own error is of the copying; possible where it is one of any program's."""
    if caught == "OutOfMemoryError" or log.find(Pattern(r"OutOfMemoryError: |CUDA out of memory")):
        return Certainty.POSSIBLE
    if caught == "StopIteration" or log.find(_OF_REPLICAS) is not None:
        return Certainty.CERTAIN
    if caught in _OWN_FAULT:
        return Certainty.POSSIBLE
    inner = [error for error in log.errors if not REPLICA.search(error.message)]
    return Certainty.POSSIBLE if inner and not log.passes("transformers", "peft") else Certainty.LIKELY


def _is_split(log: FailureLog) -> bool:
    return log.has("npu_dtype_cast") or log.setup.mentions(r"device_map|device_map_auto")


def _of_outliers(sizes: tuple[str | None, ...]) -> bool:
    """True for the shapes of LLM.int8's outlier columns, which two replicas disagree on: (511x2 and 3x4096)."""
    _, a, b, columns = (int(size or 0) for size in sizes)
    return a != b and a < 512 and b < 512 and columns >= 1024
