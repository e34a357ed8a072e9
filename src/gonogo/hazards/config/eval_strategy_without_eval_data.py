from gonogo.hazards.rule import Call, Certainty, Field, Findings, Hazard, Run, Script, translated

_TRAINER_CLASSES = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
_EVALUATION_METHODS = ("get_eval_dataloader", "evaluate", "evaluation_loop", "_maybe_log_save_evaluate", "__init__")


class EvalStrategyWithoutEvalData(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A Trainer without eval_dataset, under arguments that ask for evaluation."""
        calls = list(script.calls(*_TRAINER_CLASSES))
        if len(calls) != 1 or not (strategies := _active_eval_strategies(run)):
            return
        call, strategy = calls[0], strategies[0]
        data = call.keyword("eval_dataset")
        given = call.keyword_node("eval_dataset") is not None and not (data.known and data.value is None)
        if given or call.has_unknown_kwargs or len(call.node.args) > 4 or _overrides_evaluation(call, script):
            return
        if b".eval_dataset" in script.source.data:
            return
        plain = call.name in _TRAINER_CLASSES
        word = str(strategy.value).rpartition(".")[2].lower()
        yield self.finding(
            translated('Evaluation is set to "{word}", but this Trainer is given no eval_dataset.').format(word=word),
            certainty=Certainty.CERTAIN if plain else Certainty.LIKELY,
            spans=(call.place.span(), strategy.span(translated("evaluation is requested here"))),
        )


def _active_eval_strategies(run: Run) -> list[Field]:
    fields = [run.arguments.get(name) for name in ("eval_strategy", "evaluation_strategy")]
    return [
        field for field in fields if field.known and str(field.value).rpartition(".")[2].lower() in ("steps", "epoch")
    ]


def _overrides_evaluation(call: Call, script: Script) -> bool:
    """Whether a class of the project might evaluate on other data."""
    name = call.name.rpartition(".")[2]
    everywhere = (script, *script.imported)
    return any(
        set(_EVALUATION_METHODS) & set(one.methods)
        for other in everywhere
        for one in other.subclasses(*_TRAINER_CLASSES)
        if one.name == name
    )
