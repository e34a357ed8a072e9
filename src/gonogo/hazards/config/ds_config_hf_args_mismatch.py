from collections.abc import Iterator
from functools import partial

from gonogo.evidence.config.accelerate import AccelerateConfig
from gonogo.evidence.config.deepspeed_auto import TRANSFORMERS_DEFAULTS, ArgumentCorrespondence, hf_correspondences
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.match import matched_text
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places
from gonogo.evidence.training_arguments import Arguments
from gonogo.hazards.config._mismatch_lines import MismatchLine, mismatch_lines_in_log, mismatch_lines_in_message
from gonogo.hazards.facts.training_framework import (
    fix_with_edits,
    format_json,
    is_config_from_accelerate_yaml,
    uses_stock_training_arguments,
    uses_trainer,
)
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    Field,
    Findings,
    Fix,
    Hazard,
    RehearsalRecord,
    Run,
    Span,
    Text,
    translated,
)

_TRAINING_ARGUMENTS_LABEL = translated("TrainingArguments")
_ACCELERATE = translated("accelerate")


class DsConfigHfArgsMismatch(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """transformers' list of mismatches; lines with equal values are another hazard."""
        for failed in failed_ranks(record):
            differing = [
                line for line in mismatch_lines_in_message(failed.failure.message) if not line.has_equal_values
            ]
            if differing:
                other = _compared_source_text(failed.failure.message)
                yield self.finding(
                    self._format_cause(differing, other),
                    cure=self._choose_cure(differing, other),
                    spans=failure_places(failed.failure),
                    ranks=failed.ranks,
                )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """All mismatches that transformers would list, by its own comparison."""
        if not uses_trainer(run) or run.launch is None:
            return
        differing = list(_mismatched_settings(config, run))
        sure = [found for found in differing if _is_argument_value_certain(found[0], run)]
        # trl's classes have defaults of their own, which change from release to release.
        differing = sure or ([] if any(script.imports("trl") for script in run.scripts) else differing)
        if not differing:
            return
        lines = [
            MismatchLine(".".join(pair.keys), format_json(field.value), pair.argument, format_json(pair.expected.value))
            for pair, field in differing
        ]
        yaml = run.accelerate if is_config_from_accelerate_yaml(run) else None
        yield self.finding(
            self._format_cause(lines),
            title=self.texts["yaml_title"] if yaml is not None else None,
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
            cure=self._choose_cure(lines) if yaml is None else tuple(self._yaml_cure(pair) for pair, _ in differing),
            spans=tuple(_mismatch_spans(differing, run.arguments)),
            fixes=fix_with_edits(
                translated('Set these keys to "auto"'),
                *(partial(config.replacing, *pair.keys, value="auto") for pair, _ in differing),
            )
            if yaml is None
            else _yaml_fixes(yaml, [pair for pair, _ in differing]),
            confirm=self.texts["confirm"],
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The list with a line whose values really differ, or the error if the list is cut off."""
        found = mismatch_lines_in_log(log)
        if found is None:
            if cut := find_truncated_error(log, ("transformers/", "trainer_config_finalize"), max_frames=1):
                yield self.log_finding(
                    cut, self._format_cause([]), cure=self._choose_cure([]), certainty=Certainty.LIKELY
                )
            return
        evidence, lines = found
        differing = [line for line in lines if not line.has_equal_values]
        if differing or not lines:
            other = _compared_source_text(matched_text(log, evidence))
            yield self.log_finding(
                evidence,
                self._format_cause(differing, other),
                cure=self._choose_cure(differing, other),
                # Without the list, the values may differ only in type.
                certainty=Certainty.CERTAIN if differing else Certainty.LIKELY,
            )

    def _format_cause(self, differing: list[MismatchLine], other: Text = _TRAINING_ARGUMENTS_LABEL) -> Text:
        if not differing:
            return self.texts["settings_differ_cause"].format(other=other)
        listed = "; ".join(f"{line.ds_key}={line.ds_value} / {line.hf_key}={line.hf_value}" for line in differing)
        return translated("{count} setting(s) differ (DeepSpeed config / {other}): {listed}.").format(
            count=len(differing), other=other, listed=listed
        )

    def _choose_cure(self, differing: list[MismatchLine], other: Text = _TRAINING_ARGUMENTS_LABEL) -> tuple[Text, ...]:
        if not differing:
            return (
                translated('Set the keys that differ to "auto" in the DeepSpeed config: {other} then decides').format(
                    other=other
                ),
            )
        first = translated('Set {keys} to "auto" in the DeepSpeed config: {other} then decides').format(
            keys=", ".join(line.ds_key for line in differing), other=other
        )
        if "train_batch_size" not in [line.ds_key for line in differing]:
            return (first,)
        return (first, self.texts["too_few_processes_cure"])

    def _yaml_cure(self, correspondence: ArgumentCorrespondence) -> Text:
        if correspondence.keys in _YAML_KEYS:
            return translated("Set {key} to {value} in accelerate's YAML, to match the arguments").format(
                key=correspondence.keys[0], value=format_json(correspondence.expected.value)
            )
        return self.texts["yaml_precision_cure"].format(kind=correspondence.keys[0])


def _compared_source_text(message: str) -> Text:
    """What the config is compared with: accelerate runs the same check on its own YAML and options."""
    return _ACCELERATE if "mismatch kwargs" in message else _TRAINING_ARGUMENTS_LABEL


# The values of its YAML from which accelerate makes the DeepSpeed config: these two, and mixed_precision.
_YAML_KEYS = {("gradient_accumulation_steps",), ("gradient_clipping",)}


def _yaml_fixes(yaml: AccelerateConfig, correspondences: list[ArgumentCorrespondence]) -> tuple[Fix, ...]:
    """Write the arguments' values into the YAML; no fix if other settings differ as well."""
    if any(pair.keys not in _YAML_KEYS for pair in correspondences):
        return ()
    return fix_with_edits(
        translated("Write the arguments' values into the YAML"),
        *(
            partial(yaml.replacing, "deepspeed_config", *pair.keys, value=pair.expected.value)
            for pair in correspondences
        ),
    )


def _mismatched_settings(config: DeepSpeedConfig, run: Run) -> Iterator[tuple[ArgumentCorrespondence, Field]]:
    """The settings whose values differ, each with the corresponding argument."""
    # An argument that requests fp16 or bf16 takes precedence over mixed_precision in accelerate's YAML.
    requested = [run.arguments.get(name) for name in ("fp16", "bf16")]
    decided = is_config_from_accelerate_yaml(run) and any(field.truth is True or field.unknown for field in requested)
    # Both dtypes enabled is another hazard (ds-fp16-and-bf16-enabled).
    decided = decided or all(config.raw(name, "enabled").truth is True for name in ("fp16", "bf16"))
    world = run.launch.world_size if run.launch is not None else None
    framework = run.framework or (run.launch.framework if run.launch is not None else None)
    for pair in hf_correspondences(run.arguments, world_size=world, framework=framework):
        written = config.raw(*pair.keys)
        if not written.known or _means_the_same(written.value, pair.expected):
            continue
        if decided and pair.keys[0] in ("fp16", "bf16"):
            continue
        if pair.conflicts(written):
            yield pair, written
        elif pair.argument == "warmup_steps" and _has_warmup_in_config_only(written, run):
            yield ArgumentCorrespondence(pair.keys, pair.argument, pair.names, Field(0)), written


def _means_the_same(value: object, expected: Field) -> bool:
    """Whether a value differs only in type, as ``"8"`` and 8 do: another hazard (ds-config-value-string-type)."""
    if not isinstance(value, str) or not expected.known:
        return False
    try:
        return float(value) == float(expected.value)
    except (TypeError, ValueError):
        return value.lower() == str(expected.value).lower()


def _has_warmup_in_config_only(warmup_steps: Field, run: Run) -> bool:
    """Whether only the config has warmup steps, and the arguments have none."""
    if not isinstance(warmup_steps.value, int) or warmup_steps.value < 2:
        return False
    return all(run.arguments.get(name).absent for name in ("warmup_steps", "warmup_ratio"))


def _is_argument_value_certain(correspondence: ArgumentCorrespondence, run: Run) -> bool:
    """Whether the argument certainly has that value: it is given, or is transformers' own default."""
    absent = [name for name in correspondence.names if run.arguments.get(name).absent and name in TRANSFORMERS_DEFAULTS]
    if not absent:
        return True
    if uses_stock_training_arguments(run):
        return True
    # If one of two is given, that decides if the other can't undo it: fp16 and fp16_full_eval.
    return bool(correspondence.expected.value is True and len(absent) < len(correspondence.names))


def _mismatch_spans(
    differing_pairs: list[tuple[ArgumentCorrespondence, Field]], arguments: Arguments
) -> Iterator[Span | None]:
    for _, field in differing_pairs:
        yield field.span()
    for name in dict.fromkeys(name for pair, _ in differing_pairs for name in pair.names):
        if arguments.has(name):
            label = translated("TrainingArguments: {name}").format(name=name)
            yield arguments.get(name).span(label)
