import re

import msgspec

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.patterns import lazy_compile
from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places, shorten_exception_message
from gonogo.hazards.facts.training_framework import (
    fix_with_edits,
    integer_setting,
    mentions,
    uses_accelerate,
    uses_trainer,
)
from gonogo.hazards.log_rule import log_mentions
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    Field,
    Finding,
    Findings,
    Fix,
    Hazard,
    RehearsalRecord,
    Run,
    Text,
    translated,
)

_MISMATCH_MESSAGE = "Check batch related parameters. train_batch_size is not equal to"
_ZERO_ACCUMULATION_MESSAGE = "Gradient accumulation steps: 0 has to be greater than 0"
_BATCH_SIZE_MESSAGES = (
    "Check batch related parameters",  # in every version; the rest of the message differs
    "Micro batch size per gpu: 0 has to be greater",
    "Gradient accumulation steps: 0 has to be greater",
    "Train batch size: 0 has to be greater",
)
_FRACTIONAL_WORLD_PATTERN = lazy_compile(r"!=\s{0,4}\d{1,9}\s{0,4}\*\s{0,4}\d{1,9}\s{0,4}\*\s{0,4}\d{1,9}\.\d")
"""A fractional world size: DeepSpeed has divided the number of processes by those that share a sample."""
_BATCH_EQUATION_PATTERN = lazy_compile(
    r"(\d{1,9})\s{0,4}!=\s{0,4}(\d{1,9})\s{0,4}\*\s{0,4}(\d{1,9})\s{0,4}\*\s{0,4}(\d{1,9})"
)
_TRAIN, _MICRO, _ACCUMULATION = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


class _MismatchedSizes(msgspec.Struct, frozen=True):
    """Batch sizes that don't match, as DeepSpeed reads them. ``world`` is None if no number of processes would work."""

    train: Field
    micro: Field | None
    accumulation: Field | None
    world: int | None
    inequality: str


class DsBatchSizeWorldSizeMismatch(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """DeepSpeed's assertion, with its numbers."""
        for failed in failed_ranks(record):
            message = failed.failure.message
            if _MISMATCH_MESSAGE not in message and _ZERO_ACCUMULATION_MESSAGE not in message:
                continue
            numbers = _BATCH_EQUATION_PATTERN.search(message)
            seen = int(numbers.group(4)) if numbers else record.world_size
            cure = [
                translated('Set train_batch_size to {value}, or to "auto" under the Trainer, or leave it out').format(
                    value=_train_batch_size_text(numbers, record.world_size)
                )
            ]
            if seen != record.world_size:
                cure.insert(0, self.texts["one_process_seen_cure"].format(seen=seen, world=record.world_size))
            yield self.finding(
                translated("The launch starts {world} process(es). DeepSpeed: {message}").format(
                    world=record.world_size, message=shorten_exception_message(message)
                ),
                cure=tuple(cure),
                spans=failure_places(failed.failure),
                ranks=failed.ranks,
            )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Sizes that don't multiply out for the launch's number of processes, or for any number."""
        broken = _mismatched_sizes(config, run)
        if broken is not None:
            yield self._refused_sizes_finding(broken, config, run)

    log_words = (
        *_BATCH_SIZE_MESSAGES,
        "train_batch_size",
        "_batch_assertion",
        "sequence_parallel_size",
        "ulysses",
        "autotp_size",
    )

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's assertion; its last number is the world size that DeepSpeed sees."""
        evidence = first_match(log, *_BATCH_SIZE_MESSAGES)
        if evidence is None:
            evidence = find_truncated_error(log, ("deepspeed/runtime/config", "_batch_assertion"))
        if evidence is None:
            return
        message = matched_text(log, evidence)
        numbers = _BATCH_EQUATION_PATTERN.search(message)
        if numbers is None and "has to be greater" in message:
            cause = self.texts["division_gives_0_cause"].format(message=shorten_exception_message(message))
        else:
            cause = self.texts["inconsistent_sizes_cause"].format(numbers=f" ({numbers.group(0)})" if numbers else "")
        cure = [self.texts["cure"]]
        shared = _FRACTIONAL_WORLD_PATTERN.search(message) or log_mentions(log, self.patterns["sample_sharing"])
        if shared:
            cure.insert(0, self.texts["sample_sharing_cure"])
        elif numbers and int(numbers.group(4)) == 1:
            cure.insert(0, self.texts["one_process_cure"])
        yield self.log_finding(evidence, cause, cure=tuple(cure))

    def _refused_sizes_finding(self, batch_mismatch: _MismatchedSizes, config: DeepSpeedConfig, run: Run) -> Finding:
        """The finding about sizes in the config, placed at ``train_batch_size``."""
        changed = mentions(run, '"train_batch_size"', "'train_batch_size'")
        world = run.launch.world_size if run.launch is not None else Field.missing()
        cause = self.texts["no_multiple_cause"] if batch_mismatch.world is None else self.texts["launch_size_cause"]
        spans = [batch_mismatch.train.span()]
        if batch_mismatch.micro is not None:
            spans.append(batch_mismatch.micro.span(translated("the micro-batch size")))
        if batch_mismatch.accumulation is not None:
            spans.append(batch_mismatch.accumulation.span(translated("the accumulation steps")))
        if batch_mismatch.world is not None:
            label = translated("the launch starts {world} process(es)").format(world=batch_mismatch.world)
            spans.append(world.span(label))
        return self.finding(
            cause.format(
                train=batch_mismatch.train.value, world=batch_mismatch.world, inequality=batch_mismatch.inequality
            ),
            certainty=Certainty.LIKELY if changed else Certainty.CERTAIN,
            cure=self._choose_cure(batch_mismatch, config),
            spans=tuple(spans),
            fixes=(*_accumulation_fixes(batch_mismatch, config, run), *_build_fixes(config, run)),
            confirm=(translated("The script leaves the config's train_batch_size as it is"),) if changed else (),
        )

    def _choose_cure(self, batch_mismatch: _MismatchedSizes, config: DeepSpeedConfig) -> Text:
        micro, accumulation = integer_setting(config, _MICRO), integer_setting(config, _ACCUMULATION)
        if batch_mismatch.world and micro is not None and accumulation is not None:
            return self.texts["leave_out_or_write_cure"].format(
                right=micro.value * accumulation.value * batch_mismatch.world,
                micro=micro.value,
                accumulation=accumulation.value,
                world=batch_mismatch.world,
            )
        if batch_mismatch.world and micro is None:  # without both, DeepSpeed would have nothing to compute it from
            step = batch_mismatch.world * (accumulation.value if accumulation is not None else 1)
            return self.texts["multiple_cure"].format(step=step, next=-(-batch_mismatch.train.value // step) * step)
        return self.texts["leave_out_cure"]


def _train_batch_size_text(match: re.Match[str] | None, world_size: int) -> str:
    """The train_batch_size that the other two numbers give with the real world size."""
    if match is None:
        return "train_micro_batch_size_per_gpu * gradient_accumulation_steps * " + str(world_size)
    micro, accumulation = int(match.group(2)), int(match.group(3))
    return f"{micro * accumulation * world_size} (= {micro} * {accumulation} * {world_size})"


def _mismatched_sizes(config: DeepSpeedConfig, run: Run) -> _MismatchedSizes | None:
    """The batch sizes if DeepSpeed rejects them; None if it accepts them or if that is unknown."""
    train = integer_setting(config, _TRAIN)
    if train is None or not _splits_batch_among_all_ranks(config, run):
        return None
    micro, accumulation = config.get(_MICRO), config.get(_ACCUMULATION)
    if uses_trainer(run) is not False and (config.is_auto(_MICRO) or config.is_auto(_ACCUMULATION)):
        return None  # transformers compares it with its own arguments first: ds-config-hf-args-mismatch
    sizes = [_positive_or_zero(field) for field in (micro, accumulation)]
    if any(size is None for size in sizes):
        return None
    micro_size, accumulation_size = sizes[0] or 0, sizes[1] or 0
    if not accumulation_size and micro_size and uses_accelerate(run):
        accumulation_size = 1  # accelerate's plugin fills in what the JSON leaves out
    world = run.world_size
    if train.value <= 0 or (world is not None and world <= 0):
        return None
    if world is None and uses_trainer(run) is None and run.launch is not None:
        return None
    wrong = _batch_size_inequality(train.value, micro_size, accumulation_size, world)
    if wrong is None:
        return None
    given = (
        micro if micro_size and micro.place is not None else None,
        accumulation if accumulation_size and accumulation.place is not None else None,
    )
    return _MismatchedSizes(train, *given, world, wrong)


def _positive_or_zero(field: Field) -> int | None:
    """The number, 0 if the field is absent, None if it is unknown or not a positive integer."""
    if field.absent or (field.known and field.value is None):
        return 0
    value = field.value if field.known else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _batch_size_inequality(train: int, micro: int, accumulation: int, world: int | None) -> str | None:
    """The inequality that DeepSpeed would print; None if the sizes are valid (``_set_batch_related_parameters``)."""
    if world is None:
        least = (micro or 1) * (accumulation or 1)
        return None if train % least == 0 else f"{train} % ({micro or 1} * {accumulation or 1}) = {train % least}"
    if micro and not accumulation:
        accumulation = train // micro // world
    elif not micro:
        accumulation = accumulation or 1
        micro = train // world // accumulation
    if train == micro * accumulation * world:
        return None
    return f"{train} != {micro} * {accumulation} * {world}"


def _splits_batch_among_all_ranks(config: DeepSpeedConfig, run: Run) -> bool:
    """Whether each process gets its own part of a batch: not with pipelines, tensor or sequence parallelism."""
    for keys in (("tensor_parallel",), ("sequence_parallel_size",), ("pipeline",), ("autotuning", "enabled")):
        field = config.raw(*keys)
        if field.unknown or (field.known and field.value not in (False, None, 1)):
            return False
    return not mentions(run, "PipelineModule", "mpu=", "sequence_parallel", "tensor_parallel", "model_parallel")


def _build_fixes(config: DeepSpeedConfig, run: Run) -> tuple[Fix, ...]:
    if uses_accelerate(run):
        title = translated('Set train_batch_size to "auto"')
        return fix_with_edits(title, lambda: config.replacing(_TRAIN, value="auto"))
    if integer_setting(config, _MICRO) is not None:
        title = translated("Remove train_batch_size: DeepSpeed computes it")
        return fix_with_edits(
            title, lambda: config.removing(_TRAIN), safe=integer_setting(config, _ACCUMULATION) is not None
        )
    return ()


def _accumulation_fixes(batch_mismatch: _MismatchedSizes, config: DeepSpeedConfig, run: Run) -> tuple[Fix, ...]:
    """Set the accumulation steps that give train_batch_size samples per step on this number of ranks."""
    micro = integer_setting(config, _MICRO)
    if (
        micro is None
        or not batch_mismatch.world
        or uses_accelerate(run)
        or batch_mismatch.train.value % (micro.value * batch_mismatch.world)
    ):
        return ()
    steps = batch_mismatch.train.value // (micro.value * batch_mismatch.world)
    title = translated("Accumulate {steps} micro-batches: {train} samples per step on {world} ranks").format(
        steps=steps, train=batch_mismatch.train.value, world=batch_mismatch.world
    )
    return fix_with_edits(title, lambda: config.inserting(_ACCUMULATION, value=steps), safe=False)
