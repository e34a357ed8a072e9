import ast
import re

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import (
    Call,
    Certainty,
    Finding,
    Findings,
    Hazard,
    Pattern,
    Run,
    Script,
    Severity,
    Text,
    translated,
)
from gonogo.hazards.zero3._loading import is_zero3_configured_at, model_loads, zero3_configuring_calls
from gonogo.hazards.zero3._zero3_in_log import find_error_or_line, is_under_zero3

_NOT_INITIALIZED_PATTERN = Pattern(r"Model was not initialized with `?Zero-?3`? despite being configured")
_LOADING_PATTERN = Pattern(r"Loading checkpoint shards|Loading weights|Loading pipeline components|from_pretrained")
_TRAINING_STARTED_PATTERN = Pattern(r"'loss': |\bloss[:=] ?\d|\*{3,} Running training")
_ZERO_INIT_ACTIVE_PATTERN = Pattern(r"(?i)activating zero\.init")


class Zero3InitNotActiveLoadOom(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A model that is loaded before the training arguments exist, or an ``HfDeepSpeedConfig`` that isn't kept."""
        if run.zero_stage != 3:
            return
        for call in script.calls("*.HfDeepSpeedConfig"):
            if isinstance(script.parent(call.node), ast.Expr):
                yield self._file_finding(run, call, self.texts["config_freed_cause"], None)
        for call in model_loads(script):
            if is_zero3_configured_at(script, call.node) is not False or call.keyword("quantization_config").known:
                continue
            first = next((one for one in script.cached_result(zero3_configuring_calls) if one.line > call.line), None)
            if first is None or "Accelerator" in first.name:
                continue
            yield self._file_finding(run, call, self.texts["loaded_too_early_cause"].format(line=first.line), first)

    def _file_finding(self, run: Run, call: Call, cause: Text, first: Call | None) -> Finding:
        return self.finding(
            cause,
            severity=Severity.WARNING,
            cure=self.cures[:1],
            spans=(
                call.place.span(),
                first.place.span(translated("transformers knows about ZeRO-3 from here on")) if first else None,
                stage_span(run),
            ),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """transformers' error, or a process that was killed while it loaded the model without zero.Init."""
        if evidence := find_error_or_line(log, _NOT_INITIALIZED_PATTERN, "ValueError"):
            yield self._build_finding(evidence, Certainty.LIKELY)
            return
        if log.find(_ZERO_INIT_ACTIVE_PATTERN):
            return
        stage3 = is_under_zero3(log)
        if not stage3:
            return
        killed = log.find(self.patterns["killed"])
        if killed and _was_loading(log, killed):
            ordered = _loads_model_before_arguments(log.setup.script)
            yield self._build_finding(killed, Certainty.LIKELY if ordered else Certainty.POSSIBLE)

    def _build_finding(self, evidence: LoggedError | LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(evidence, certainty=certainty)


def _was_loading(log: FailureLog, kill_line: LineMatch) -> bool:
    """Whether loading a model was the last thing that the run did before it was killed."""
    for line in reversed(log.lines_before(kill_line.line, 200)):
        if _TRAINING_STARTED_PATTERN.search(line.text):
            return False
        if _LOADING_PATTERN.search(line.text):
            return True
    return False


def _loads_model_before_arguments(script: str) -> bool:
    model = script.find(".from_pretrained(")
    arguments = re.search(
        r"TrainingArguments\(|parse_args_into_dataclasses|HfDeepSpeedConfig\(|SFTConfig\(|Seq2SeqTrainingArg", script
    )
    models = re.search(r"(?:Model\w*|ForCausalLM|ForConditionalGeneration)\.from_pretrained\(", script)
    return model >= 0 and models is not None and arguments is not None and models.start() < arguments.start()
