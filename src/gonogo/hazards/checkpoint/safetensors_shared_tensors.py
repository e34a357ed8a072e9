import ast
from collections.abc import Iterator

from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.patterns import lazy_compile
from gonogo.evidence.rehearsal.failures import first_few_names
from gonogo.hazards.facts.training_script import calls_that_train, creating_calls, first_argument, is_trainer
from gonogo.hazards.rule import Call, Certainty, Findings, Hazard, LogLine, Run, Script, Text, translated

_SHARED_TENSORS_MESSAGES = ("Some tensors share memory", "trying to be saved contained shared tensors")
_REFUSING_FRAMES = (("safetensors/torch.py", "raise RuntimeError("), ("modeling_utils.py", "save_pretrained"))
_QUOTED_NAME_PATTERN = lazy_compile(r"'([^']{1,200})'")

_SAVE_MODEL_CURE = (
    translated("safetensors.torch.save_model(model, path) writes a shared tensor once; load it with load_model"),
    translated("Or, for a transformers model, call model.save_pretrained(folder)"),
)


class SafetensorsSharedTensors(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """save_file of a model with tied weights, or a module of the script with tied weights under the Trainer."""
        if b"save_file" in script.source.data:
            yield from self._save_file_call_findings(script, run)
        if b".weight = " in script.source.data and b"nn.Module" in script.source.data:
            yield from self._trainer_save_findings(script, run)

    def _save_file_call_findings(self, script: Script, run: Run) -> Findings:
        for call in script.calls("safetensors.torch.save_file"):
            given = first_argument(call, "tensors")
            if not isinstance(given, ast.Call) or not isinstance(given.func, ast.Attribute) or given.args:
                continue
            if given.func.attr != "state_dict":
                continue
            model = given.func.value
            tied = next((node for node in _weight_tying_statements(script)), None)
            made = creating_calls(script, model)
            hub = any(one.method == "from_pretrained" for one in made)
            by_config = hub and run.model is not None and run.model.first_value("tie_word_embeddings") is True
            own = tied is not None and any(_constructs_tied_class(script, one, tied) for one in made)
            if not by_config and not own:
                continue
            name = script.place(model).text
            edits = [script.replacing(given, name), script.replacing(call.node.func, "save_model")]
            imported = _find_import(script, call)
            edits.append(script.replacing(imported, "save_model") if imported is not None else None)
            yield self.finding(
                self.texts["save_file_cause"].format(
                    name=name,
                    why=translated("tie_word_embeddings in its config.json")
                    if by_config
                    else translated("tied at the place shown below"),
                ),
                cure=_SAVE_MODEL_CURE,
                spans=(
                    call.place.span(),
                    script.place(tied).span(translated("tied here")) if own and tied is not None else None,
                ),
                fixes=self.fix(
                    translated("Save with save_model, which handles tied weights"),
                    *(edit for edit in edits if edit is not None),
                )
                if all(edit is not None for edit in edits)
                else None,
            )

    def _trainer_save_findings(self, script: Script, run: Run) -> Findings:
        if run.environment.within("transformers", ">=4.35,<5") is not True:
            return
        safe = run.arguments.get("save_safetensors")
        if safe.truth is False or safe.unknown:
            return
        strategy = run.arguments.get("save_strategy")
        if strategy.unknown or str(strategy.value) in ("no", "False"):
            return
        for trainer, node in calls_that_train(script):
            if not is_trainer(trainer):
                continue
            for tie in _weight_tying_statements(script):
                owner = script.enclosing_class(tie)
                if owner is None:
                    continue
                plain = owner.is_subclass("torch.nn.Module") and not owner.is_subclass("*PreTrained*")
                if not plain or not any(
                    _constructs_tied_class(script, one, tie) for one in creating_calls(script, node)
                ):
                    continue
                if any(name in owner.methods for name in ("state_dict", "save_pretrained")):
                    continue
                yield self.finding(
                    self.texts["trainer_cause"].format(owner=owner.name),
                    certainty=Certainty.LIKELY,
                    spans=(
                        script.place(tie).span(),
                        trainer.script.place(trainer.node.func).span(translated("saved by this Trainer")),
                    ),
                )

    def in_log(self, log: FailureLog) -> Findings:
        """The error, with the names of the tensors that share memory."""
        quoted = first_match(log, *_SHARED_TENSORS_MESSAGES)
        evidence: LoggedError | LogLine | LineMatch | None = quoted
        names = _QUOTED_NAME_PATTERN.findall(matched_text(log, quoted).partition("[")[2]) if quoted is not None else []
        certainty = Certainty.CERTAIN
        if evidence is None and not log.errors:
            evidence = find_truncated_error(log, *_REFUSING_FRAMES, max_frames=1)
            certainty = Certainty.LIKELY
        if evidence is None or is_outside_training(log):
            return
        cures = [self.texts["old_format_cure"], self.texts["save_model_cure"]]
        if len(names) > 8:
            cures.insert(0, self.texts["empty_placeholders_cure"])
        yield self.log_finding(
            evidence,
            translated("{names} share memory, and safetensors does not write the same memory under two names.").format(
                names=Text(first_few_names(names, 4), f"{first_few_names(names, 4)} ")
                if names
                else translated("Some tensors")
            ),
            certainty=certainty,
            cure=tuple(cures),
            parameter=names[0] if names else None,
        )


def _weight_tying_statements(script: Script) -> Iterator[ast.Assign]:
    """``self.head.weight = self.embed.weight``."""
    for node in script.nodes(ast.Assign):
        target, value = node.targets[0], node.value
        if len(node.targets) != 1 or not isinstance(target, ast.Attribute) or not isinstance(value, ast.Attribute):
            continue
        if target.attr == value.attr == "weight" and not script.guarded_by(node):
            yield node


def _constructs_tied_class(script: Script, call: Call, tie_assignment: ast.Assign) -> bool:
    """Whether a call instantiates the class that contains the tie."""
    owner = script.enclosing_class(tie_assignment)
    return owner is not None and call.name == owner.name


def _find_import(script: Script, call: Call) -> ast.alias | None:
    """The import of ``save_file`` if this call is its only use."""
    if not isinstance(call.node.func, ast.Name) or script.source.data.count(b"save_file") != 2:
        return None
    for node in script.nodes(ast.ImportFrom):
        for alias in node.names:
            if node.module == "safetensors.torch" and alias.name == "save_file" and alias.asname is None:
                return alias
    return None
