import ast
from math import prod

from gonogo.evidence.failure.message import parse_shape_sizes
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.zero_usage import (
    dotted_name_or_empty,
    is_before_deepspeed_initialize,
    is_behind_option,
    is_engine,
    is_in_gathered_parameters,
    is_trained,
    is_under_zero_condition,
    source_text,
    stage_span,
)
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Run, Script, Text, translated
from gonogo.hazards.zero3._shape_mismatches import shape_mismatches
from gonogo.hazards.zero3._zero3_in_log import find_error_or_line, is_under_zero3

_CANNOT_GATHER_PATTERN = Pattern(r"[Cc]annot get 16bit model weights because `stage3_gather")
_EMPTY_TENSOR_LISTING_PATTERN = Pattern(r"\.(?:weight|bias|lora_[AB])\b.{0,24}torch\.Size\(\[0\]\)")
_CHECKPOINT_FILE_PATTERN = Pattern(r"(?i)checkpoint|model_states|\.bin\b|\.safetensors|\bsaved?\b")
_EMPTY_WEIGHT_PATTERN = Pattern(r"\b[\w.]+\.(?:weight|bias|lora_[AB])\S* ?[=:]\s*torch\.Size\(\[0\]\)")
_GATHER_ON_SAVE_KEY = "stage3_gather_16bit_weights_on_model_save"
_FILE_CURE = (
    Text(
        f'Set "{_GATHER_ON_SAVE_KEY}": true, and save through Trainer, engine.save_16bit_model, or save_pretrained('
        "..., state_dict=accelerator.get_state_dict(engine)), called on all ranks",
        f'设 "{_GATHER_ON_SAVE_KEY}": true，并通过 Trainer、engine.save_16bit_model 或 save_pretrained('
        "..., state_dict=accelerator.get_state_dict(engine)) 在所有 rank 上保存",
    ),
    translated(
        "Or call engine.save_checkpoint, and rebuild the weights: python zero_to_fp32.py CHECKPOINT_DIR OUTPUT_DIR"
    ),
)


class Zero3SavedEmptyWeights(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``torch.save(model.state_dict())`` or ``save_pretrained`` of a model that ZeRO-3 has partitioned."""
        if run.zero_stage != 3:
            return
        for call in script.calls("*.save_pretrained", "*.state_dict"):
            model = call.receiver
            if (
                model is None
                or call.has("state_dict")
                or call.has_unknown_kwargs
                or is_in_gathered_parameters(script, call.node)
            ):
                continue
            if (
                not _is_partitioned(script, model)
                or is_under_zero_condition(script, call.node)
                or is_before_deepspeed_initialize(script, call.node)
            ):
                continue
            if call.method == "state_dict" and not _is_saved(script, call.node):
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(code=source_text(script, call.node)),
                certainty=Certainty.LIKELY if is_behind_option(script, call.node) else Certainty.CERTAIN,
                cure=_FILE_CURE,
                spans=(call.place.span(), stage_span(run)),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch whose empty side is the checkpoint, an error about gathering, or a list of empty weights."""
        found = self._find_evidence(log)
        if found is None:
            return
        evidence, certainty = found
        yield self.log_finding(
            evidence,
            cure=(
                self.texts["cure"],
                Text(
                    f'Before the next run set "{_GATHER_ON_SAVE_KEY}": true in the DeepSpeed JSON (accelerate: '
                    "zero3_save_16bit_model: true)",
                    f'下次训练前在 DeepSpeed JSON 中设 "{_GATHER_ON_SAVE_KEY}": true'
                    "（accelerate：zero3_save_16bit_model: true）",
                ),
            ),
            certainty=certainty,
            confirm=translated("The saved file is far smaller than the model, and the run that saved it used ZeRO-3"),
        )

    def _find_evidence(self, log: FailureLog) -> tuple[LoggedError | LineMatch, Certainty] | None:
        mismatches = list(shape_mismatches(log))
        for mismatch in mismatches:
            if mismatch.saved == "0" and mismatch.current != "0":
                return mismatch.evidence, Certainty.CERTAIN
        ones = [m for m in mismatches if m.saved == "1" and prod(parse_shape_sizes(m.current)) > 1]
        if len(ones) > 1 or (ones and is_under_zero3(log)):
            return ones[0].evidence, Certainty.LIKELY
        if evidence := find_error_or_line(log, _CANNOT_GATHER_PATTERN, "ValueError"):
            return evidence, Certainty.LIKELY
        if (line := log.find(_EMPTY_TENSOR_LISTING_PATTERN)) and log.find(_CHECKPOINT_FILE_PATTERN):
            return line, Certainty.LIKELY if is_under_zero3(log) else Certainty.POSSIBLE
        unlisted = [] if log.errors else list(log.find_all(_EMPTY_WEIGHT_PATTERN))
        if len(unlisted) > 1:
            return unlisted[0], Certainty.LIKELY if is_under_zero3(log) else Certainty.POSSIBLE
        return None


def _is_partitioned(script: Script, node: ast.expr) -> bool:
    """Whether an expression is the trained model: the engine's module, or the result of ``unwrap_model``."""
    if isinstance(node, ast.Call):
        return script.call_at(node).method == "unwrap_model"
    if isinstance(node, ast.Attribute) and node.attr == "module":
        return is_engine(script, node.value)
    kinds = script.kinds_of(node)
    if any(kind.endswith(("Accelerator.unwrap_model", "deepspeed.initialize.module")) for kind in kinds):
        return True
    name = dotted_name_or_empty(node)
    return name in ("trainer.model", "trainer.model_wrapped") or (
        is_trained(script, name) and next(script.calls("deepspeed.initialize"), None) is not None
    )


def _is_saved(script: Script, node: ast.Call) -> bool:
    """Whether a state dict is passed to ``torch.save`` or ``save_file``, directly or through a variable."""
    return any(
        script.bound_to(each) is node
        for call in script.calls("torch.save", "*.save_file")
        for each in ast.walk(call.node)
        if isinstance(each, (ast.Name, ast.Call))
    )
