import ast

from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.match import collapse_whitespace, first_match, matched_text
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.facts.training_script import creating_calls, first_argument, run_mentions
from gonogo.hazards.rule import Call, Certainty, FailureLog, Findings, Hazard, Pattern, Run, Script, Text, translated

_BROKEN_FILE_PATTERN = Pattern(r"[Uu]nsupported operand|invalid load key|pickle data was truncated|Ran out of input")
_WEIGHTS_ONLY_MESSAGE = "Weights only load failed"

_NO_WEIGHTS_ONLY_VARIABLE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
_ALLOWED = (b"add_safe_globals", b"safe_globals(", _NO_WEIGHTS_ONLY_VARIABLE.encode(), b"functools.partial(torch.load")


class CheckpointWeightsOnlyUnpickling(Hazard):
    log_words = (_WEIGHTS_ONLY_MESSAGE, "WeightsUnpickler", "safe_globals", "weights_only", "_get_wo_message")

    def in_script(self, script: Script, run: Run) -> Findings:
        """A torch.load without weights_only of a file that the same script saved with more than weights."""
        if b"torch.load" not in script.source.data or b"torch.save" not in script.source.data:
            return
        if run.environment.within("torch", ">=2.6") is not True or run_mentions(run, script, *_ALLOWED):
            return
        if run.launch is not None and not run.launch.variable(_NO_WEIGHTS_ONLY_VARIABLE).absent:
            return
        saves = [(save, what) for save in script.calls("torch.save") if (what := _describe_non_weights(script, save))]
        loads = [load for load in script.calls("torch.load") if load.keyword("weights_only").absent]
        for load in loads:
            path = first_argument(load, "f")
            found = [one for one in saves if _is_same_code(path, first_argument(one[0], "f", index=1))]
            sure = bool(found)
            if not found and len(saves) == len(loads) == len(list(script.calls("torch.save"))) == 1:
                found = saves
            if not found:
                continue
            save, what = found[0]
            edit = script.setting_keyword(load, "weights_only", "False")
            yield self.finding(
                self.texts["cause_in_script"].format(what=what),
                certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
                spans=(load.place.span(), save.place.span(translated("saved here"))),
                fixes=self.fix(translated("Load everything in the file (only if you trust the file)"), edit, safe=False)
                if edit is not None
                else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """The unpickler's error, with the type that it names."""
        evidence = first_match(
            log, _WEIGHTS_ONLY_MESSAGE, "WeightsUnpickler error", "was not an allowed global by default"
        )
        evidence = evidence or first_match(log, "types accepted by default with weights_only")
        evidence = evidence or find_truncated_error(log, ("torch/serialization", "UnpicklingError(_get_wo_message"))
        if evidence is None or is_outside_training(log):
            return
        message = matched_text(log, evidence)
        everything = collapse_whitespace(
            " ".join(line.text for line in log.lines if "GLOBAL" in line.text or "class" in line.text)
        )
        refused = self.patterns["refused"].search(message) or self.patterns["refused"].search(everything)
        if refused is None and _BROKEN_FILE_PATTERN.search(message):
            return  # not a pickle at all: an HTML page, a Git LFS pointer, a truncated file
        named = refused.group(1) if refused else None
        names = str(named).rstrip(".") if named else None
        yield self.log_finding(
            evidence,
            self.texts["cause_in_log"].format(
                what=Text(names, f" {names}") if names else translated("more than weights")
            ),
            certainty=Certainty.CERTAIN if refused else Certainty.LIKELY,
            cure=(
                translated("Upgrade the library whose frame calls torch.load (transformers, accelerate, deepspeed …)"),
                Text(
                    f"Allow the type before the load: torch.serialization.add_safe_globals([{names or '…'}])",
                    f"在读取之前允许该类型：torch.serialization.add_safe_globals([{names or '…'}])",
                ),
                self.texts["cure"],
            ),
            confirm=()
            if names
            else (translated("The log lines after the error name a type that weights_only does not allow"),),
        )


def _is_same_code(left: ast.expr | None, other: ast.expr | None) -> bool:
    return left is not None and other is not None and ast.dump(left) == ast.dump(other)


def _describe_non_weights(script: Script, save: Call) -> Text | None:
    """The part of a saved object that weights_only rejects: a whole module, or argparse's arguments."""
    given = first_argument(save, "obj")
    if given is None:
        return None
    if isinstance(given, ast.Name):
        made = creating_calls(script, given)
        if len(made) == 1 and isinstance(made[0].node, ast.Dict):
            return None
        if made and all(_creates_module(script, call) for call in made):
            return Text(f"the whole module {given.id}", f"整个模块 {given.id}")
        scope = [
            node
            for node in script.nodes(ast.Assign)
            if _assigns_name(node, given.id) and isinstance(node.value, ast.Dict)
        ]
        given = scope[0].value if len(scope) == 1 else given
    if isinstance(given, ast.Dict):
        for value in given.values:
            if (script.kind_of(value) or "").endswith(".parse_args"):
                return Text(
                    f"{script.place(value).text}, an argparse.Namespace",
                    f" argparse.Namespace 对象 {script.place(value).text}",
                )
    return None


def _assigns_name(node: ast.Assign, name: str) -> bool:
    return len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name


def _creates_module(script: Script, call: Call) -> bool:
    if call.name.startswith("torchvision.models."):
        return True
    made = call.name.rpartition(".")[2]  # a class: lowercase calls such as torch.nn.functional.normalize create none
    if call.name.startswith("torch.nn.") and made[:1].isupper() and made != "Parameter":
        return True
    return any(one.name == call.name and one.is_subclass("torch.nn.Module") for one in script.classes)
