from gonogo.evidence.training_arguments import Arguments
from gonogo.hazards.facts.training_framework import uses_stock_training_arguments, uses_trainer
from gonogo.hazards.rule import Certainty, Environment, Field, Findings, Hazard, Run, translated


class BestModelStrategiesDiffer(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Evaluation and save strategies, or steps, that transformers rejects with load_best_model_at_end."""
        arguments = run.arguments
        best = arguments.get("load_best_model_at_end")
        if best.truth is not True or not uses_trainer(run):
            return
        evaluation = _first_known_field(arguments, "eval_strategy", "evaluation_strategy")
        saving = arguments.get("save_strategy")
        if evaluation.unknown or saving.unknown:
            return
        evaluates, saves = _strategy_name(evaluation, "no"), _strategy_name(saving, "steps")
        if saves == "best":
            return
        if evaluates != saves:
            given = not evaluation.absent and not saving.absent
            # Change the save strategy to match the evaluation, unless there is no evaluation.
            name, value = ("eval_strategy", saves) if evaluates == "no" else ("save_strategy", evaluates)
            wrong, other, label = (
                (evaluation, saving, translated("saving", "strategy"))
                if evaluates == "no"
                else (saving, evaluation, translated("evaluation", "strategy"))
            )
            yield self.finding(
                self.texts["cause_in_environment"].format(evaluates=evaluates, saves=saves),
                certainty=Certainty.CERTAIN if given or uses_stock_training_arguments(run) else Certainty.LIKELY,
                cure=(translated('Set {name}="{value}"').format(name=name, value=value), self.texts["drop_cure"]),
                spans=(wrong.span(), best.span(), other.span(label)),
            )
        elif evaluates == "steps":
            yield from self._step_interval_findings(best, run)

    def _step_interval_findings(self, best_strategy: Field, run: Run) -> Findings:
        arguments = run.arguments
        every, saved = arguments.get("eval_steps"), arguments.get("save_steps")
        if every.absent:
            every = arguments.get("logging_steps")
        steps = 500 if every.absent else every.number
        save_steps = 500 if saved.absent else saved.number
        if steps is None or save_steps is None or every.unknown or saved.unknown:
            return
        if not (1e-5 <= steps < 1e12 and 1e-5 <= save_steps < 1e12):
            return
        ratio = steps < 1 and save_steps < 1
        if (round(save_steps * 1e6) % round(steps * 1e6) == 0) if ratio or min(steps, save_steps) >= 1 else False:
            return
        yield self.finding(
            self.texts["steps_cause"].format(saved=save_steps, every=steps),
            certainty=Certainty.CERTAIN
            if (not every.absent and not saved.absent) or uses_stock_training_arguments(run)
            else Certainty.LIKELY,
            cure=(
                translated("Set save_steps={fits}, a multiple of {every}").format(
                    fits=f"{max(1, save_steps // steps) * steps:g}", every=f"{steps:g}"
                ),
                self.texts["drop_cure"],
            ),
            spans=(
                (saved if not saved.absent else best_strategy).span(),
                every.span(translated("evaluated every {every} steps").format(every=steps)),
                best_strategy.span() if not saved.absent else None,
            ),
        )


def _first_known_field(arguments: Arguments, *names: str) -> Field:
    """The first known field among several names, else an unknown one, else an absent one."""
    fields = [arguments.get(name) for name in names]
    return next((field for field in fields if field.known), next((f for f in fields if f.unknown), fields[0]))


def _strategy_name(field: Field, default: str) -> str:
    """A strategy as a lowercase word: from an option, from YAML (where ``no`` means false), or from the enum."""
    if field.absent:
        return default
    if field.value is False:
        return "no"
    return str(field.value).rpartition(".")[2].lower()
