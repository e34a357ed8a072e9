import ast

from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Launch, Pattern, Run, Script, translated

_FAULTY_TRANSFORMERS = ">=4.53.0,<4.54.0"
_INVALID_DICT_PATTERN = Pattern(r"error: argument --deepspeed: invalid [dD]ict value")
_PARSER_CLASSES = ("transformers.HfArgumentParser", "transformers.hf_argparser.HfArgumentParser", "trl.TrlParser")
_CLASSES_LOADING_MODELING_UTILS = (
    "Trainer",
    "Seq2SeqTrainer",
    "PreTrainedModel",
)  # names whose import loads modeling_utils first


class DeepspeedPathTakenForDict(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A config path on the command line of a script whose imports put the union types in the bad order."""
        option = launch.options.get("deepspeed")
        if not option.string or option.string.startswith("{") or not run.scripts:
            return
        if run.environment.within("transformers", _FAULTY_TRANSFORMERS) is not True:
            return
        if not any(True for script in run.scripts for _ in script.calls(*_PARSER_CLASSES)):
            return
        script = run.scripts[0]
        found = _import_before_arguments(script)
        if found is None:
            return
        statement, name = found
        edit = run.environment.replacing_version("transformers", "==4.52.4")
        yield self.finding(
            self.texts["cause_in_launch"].format(name=name, path=option.string),
            # A file of the project that is imported before may import TrainingArguments.
            certainty=Certainty.CERTAIN if len(run.scripts) == 1 else Certainty.LIKELY,
            spans=(
                option.span() or launch.place.span(),
                script.place(statement).span(translated("the order of the imports")),
                run.environment.field("transformers").span(translated("the faulty release")),
            ),
            fixes=self.fix(translated("Pin transformers 4.52.4"), edit, safe=False) if edit is not None else None,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """argparse's error."""
        line = log.find(_INVALID_DICT_PATTERN)
        if line is not None:
            yield self.log_finding(line)


def _import_before_arguments(script: Script) -> tuple[ast.ImportFrom, str] | None:
    """The name imported from transformers before TrainingArguments, and its import."""
    imports = [node for node in script.nodes(ast.ImportFrom) if (node.module or "").partition(".")[0] == "transformers"]
    for node in sorted(imports, key=lambda node: node.lineno):
        for alias in node.names:
            if alias.name.endswith("TrainingArguments"):
                return None
            if alias.name in _CLASSES_LOADING_MODELING_UTILS:
                return node, alias.name
    return None
