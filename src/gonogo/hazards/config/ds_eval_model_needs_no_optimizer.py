import ast
from collections.abc import Iterator

from gonogo.evidence.log.match import first_match, matched_text
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.script.deepspeed_dicts import resolve_dict
from gonogo.evidence.script.identifiers import last_name, split_identifier, uses_name
from gonogo.hazards.facts.training_framework import trainer_calls
from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import Call, Certainty, FailureLog, Findings, Hazard, Pattern, Run, Script, translated

_STAGE_PATTERN = Pattern(r"zero stage ([0-3]|\{\}) requires an optimizer")
_ZERO_INFERENCE_MESSAGE = "ZeRO inference only makes sense with ZeRO Stage 3"
_EVALUATION_MODEL_NAMES = ("ref", "refmodel", "reference", "teacher", "reward", "critic_eval", "frozen", "judge")
_EVALUATION_MODEL_FRAMES = ("self.ref_model = prepare_deepspeed(", "ref_model", "reward_model", "teacher_model")


class DsEvalModelNeedsNoOptimizer(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A model that is prepared without an optimizer, or evaluated by a Trainer that never trains."""
        stage, config = run.zero_stage, run.config
        if config is None or stage not in (1, 2):
            return
        if config.raw("optimizer").absent:
            for call, model in _calls_without_optimizer(script):
                sure = call.name == "deepspeed.initialize" and _uses_run_config(call, script)
                named = uses_name(model, *_EVALUATION_MODEL_NAMES)
                yield self.finding(
                    self.texts["cause_in_script"].format(model=ast.unparse(model)[:60], stage=stage),
                    certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
                    cure=self.cures if named else self.cures[::-1],
                    spans=(call.place.span(), stage_span(run)),
                    confirm=self.texts["confirm"],
                )
        yield from self._evaluation_only_findings(script, run, stage)

    log_words = ("requires an optimizer", _ZERO_INFERENCE_MESSAGE, "isinstance(optimizer, DummyOptim)")

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's assertion, or the Trainer's error when it evaluates before training."""
        evidence = first_match(log, "zero stage 1 requires", "zero stage 2 requires", "requires an optimizer")
        stage = _STAGE_PATTERN.search(matched_text(log, evidence)) if evidence else None
        if stage is None:
            evidence = find_truncated_error(log, ("runtime/engine", "assert not isinstance(optimizer, DummyOptim)"))
        certainty = Certainty.CERTAIN
        if evidence is None and not log.errors and log.passes(*_EVALUATION_MODEL_FRAMES):
            # For a model without an optimizer, the optimizer wrapper is created only under ZeRO-1 and ZeRO-2.
            evidence = find_truncated_error(log, ("runtime/engine.py", "_configure_"), max_frames=2)
            certainty = Certainty.LIKELY
        if evidence:
            yield self.log_finding(
                evidence,
                self.texts["prepared_alone_cause"].format(
                    stage=stage.group(1).replace("{}", "1/2") if stage else "1/2"
                ),
                certainty=certainty,
                confirm=self.texts["confirm"],
            )
        elif evidence := first_match(log, _ZERO_INFERENCE_MESSAGE):
            yield self.log_finding(
                evidence,
                self.texts["evaluated_first_cause"],
                cure=translated("Call trainer.train() first, evaluate in a process without --deepspeed, or use ZeRO-3"),
                certainty=Certainty.POSSIBLE,
            )

    def _evaluation_only_findings(self, script: Script, run: Run, stage: int) -> Findings:
        """``trainer.evaluate()`` or ``predict`` in a program that never calls ``train``."""
        calls = tuple(script.calls("*.evaluate", "*.predict"))
        if not calls or run.any_script_contains(b".train(") or next(trainer_calls(run), None) is None:
            return
        for call in calls:
            kinds = script.kinds_of(call.receiver) if call.receiver is not None else ()
            if not any(kind.endswith("Trainer") for kind in kinds):
                continue
            yield self.finding(
                self.texts["evaluation_only_cause"].format(stage=stage),
                certainty=Certainty.LIKELY,
                cure=translated("Evaluate without --deepspeed, or with a ZeRO-3 config"),
                spans=(call.place.span(), stage_span(run)),
                confirm=translated("No other file calls trainer.train()"),
            )
            return


def _uses_run_config(call: Call, script: Script) -> bool:
    """Whether the call certainly gets the run's config: by its arguments, or as a known value."""
    own = call.keyword_node("config") or call.keyword_node("config_params")
    if own is None:
        return call.has("args")
    return script.field(own).known or resolve_dict(script, own) is not None


def _sets_its_stage(script: Script, name: str) -> bool:
    """Whether the script sets ``config["zero_optimization"]["stage"] = 0``: a config adapted to evaluation."""
    return any(
        isinstance(one, ast.Name) and one.id == name
        for each in script.nodes(ast.Subscript)
        if isinstance(each.ctx, ast.Store) and isinstance(each.slice, ast.Constant) and each.slice.value == "stage"
        for one in ast.walk(each)
    )


def _is_evaluation_model(model: ast.expr) -> bool:
    own = split_identifier(last_name(model))
    return any(own[: len(first)] == first for first in map(split_identifier, _EVALUATION_MODEL_NAMES))


def _calls_without_optimizer(script: Script) -> Iterator[tuple[Call, ast.expr]]:
    for call in script.calls("deepspeed.initialize"):
        if call.has_unknown_kwargs or call.node.args or not call.has("model") or call.has("config_class"):
            continue
        given = {"optimizer", "model_parameters"} & set(call.keywords)
        own = call.keyword_node("config") or call.keyword_node("config_params")
        named_otherwise = isinstance(own, ast.Name) and any(word in own.id.lower() for word in ("eval", "infer", "ref"))
        model = call.keyword_node("model")
        fitted = isinstance(own, ast.Name) and _sets_its_stage(script, own.id)
        if not given and not named_otherwise and not fitted and model is not None and not isinstance(own, ast.Dict):
            yield call, model
    for call in script.calls("accelerate.Accelerator.prepare"):
        if len(call.node.args) != 1 or call.node.keywords:
            continue
        model = call.node.args[0]
        if isinstance(model, (ast.Name, ast.Attribute)) and _is_evaluation_model(model):
            yield call, model
