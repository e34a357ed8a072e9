import ast
from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.role import Role
from gonogo.hazards.facts.zero_usage import TRAINERS, is_under_zero_condition, stage_span
from gonogo.hazards.rule import Call, Certainty, Findings, Hazard, Run, Script, translated
from gonogo.hazards.zero3._empty_parameter_uses import AUXILIARY, EmptyParameterCause, find_empty_parameter_uses
from gonogo.hazards.zero3._loading import is_zero3_configured_at, model_loads, zero3_configuring_calls
from gonogo.hazards.zero3._shape_mismatches import shape_mismatches
from gonogo.hazards.zero3._zero3_in_log import is_under_zero3

_OF_OTHERS = ("OSError", "ImportError", "ModuleNotFoundError", "FileNotFoundError", "KeyError", "OutOfMemoryError")
_LOADING_FRAMES = ("from_pretrained", "partition_parameters.py", "_load_pretrained_model")

_METRIC_MODEL_CALLS = (
    *("bert_score.score", "bert_score.BERTScorer", "sentence_transformers.SentenceTransformer"),
    *("sentence_transformers.CrossEncoder", "comet.load_from_checkpoint", "transformers.pipeline"),
)
_METRICS = ("bertscore", "perplexity")


class Zero3AuxModelLoadedUnderZeroInit(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A metric that loads a model of its own while a Trainer's arguments keep ZeRO-3's config active."""
        if run.zero_stage != 3 or not script.cached_result(zero3_configuring_calls):
            return
        for call, what in _metric_model_loads(script):
            if is_under_zero_condition(script, call.node) or any(
                "unset" in name for name in script.with_contexts(call.node)
            ):
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(what=what),
                spans=(call.place.span(), stage_span(run)),
                confirm=translated("The metric is computed in the training run"),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """An empty weight or a failed load in code that computes metrics."""
        found: list[tuple[LoggedError | LineMatch, Certainty]] = [
            (use.evidence, use.causes[EmptyParameterCause.AUXILIARY])
            for use in find_empty_parameter_uses(log)
            if EmptyParameterCause.AUXILIARY in use.causes
        ]
        for mismatch in shape_mismatches(log):
            error = mismatch.evidence
            if mismatch.current == "0" and isinstance(error, LoggedError) and error.passes(*AUXILIARY):
                found.append((error, Certainty.CERTAIN))
        if not found and is_under_zero3(log):
            found += [
                (error, Certainty.LIKELY)
                for error in log.errors
                if error.role is Role.ROOT
                and error.type not in _OF_OTHERS
                and error.passes(*AUXILIARY)
                and error.passes(*_LOADING_FRAMES)
            ]
        for evidence, certainty in found[:1]:
            yield self.log_finding(evidence, certainty=certainty)


def _metric_model_loads(script: Script) -> Iterator[tuple[Call, str]]:
    """The calls with which a metric loads a model, each with the name of the metric or class."""
    for call in script.calls("evaluate.load", "datasets.load_metric"):
        name = call.argument(0).string
        if name in _METRICS:
            yield call, name
    for call in (*script.calls(*_METRIC_MODEL_CALLS), *model_loads(script)):
        function = script.enclosing_function(call.node)
        if function is None or not _is_metric(script, function.name):
            continue
        if call.method != "from_pretrained":
            yield call, call.name.rpartition(".")[2]
        elif is_zero3_configured_at(script, call.node) is not False:
            yield call, call.name.split(".")[-2]


def _is_metric(script: Script, name: str) -> bool:
    """Whether a function computes the metrics of a Trainer."""
    if name == "compute_metrics":
        return True
    for call in script.calls(*TRAINERS):
        node = call.keyword_node("compute_metrics")
        if isinstance(node, ast.Name) and node.id == name:
            return True
    return False
