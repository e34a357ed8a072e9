import ast

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Pattern, Run, Script, Text

_FAULTY = ">=4.53.0,<4.54.0"
_SAID = Pattern(r"error: argument --deepspeed: invalid [dD]ict value")
_PARSERS = ("transformers.HfArgumentParser", "transformers.hf_argparser.HfArgumentParser", "trl.TrlParser")
_FIRST = ("Trainer", "Seq2SeqTrainer", "PreTrainedModel")  # what imports modeling_utils before anything else
_CURE = (
    Text(
        'Install a transformers without the bug: pip install "transformers==4.52.4", or 4.54 and newer',
        '安装没有该缺陷的 transformers：pip install "transformers==4.52.4"，或 4.54 及更新版本',
    ),
    Text(
        "In your own script import TrainingArguments on its own line, before anything else of transformers",
        "自己的脚本请单独一行先导入 TrainingArguments，放在 transformers 的其他导入之前",
    ),
)


class DeepspeedPathTakenForDict(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A path on the command line, for a script that imports what writes the other order first."""
        option = launch.options.get("deepspeed")
        if not option.string or option.string.startswith("{") or not run.scripts:
            return
        if run.environment.within("transformers", _FAULTY) is not True:
            return
        if not any(True for script in run.scripts for _ in script.calls(*_PARSERS)):
            return
        script = run.scripts[0]
        found = _imported_before_arguments(script)
        if found is None:
            return
        statement, name = found
        edit = run.environment.replacing_version("transformers", "==4.52.4")
        yield self.finding(
            Text(
                "{name} is imported before TrainingArguments, and with this transformers the option --deepspeed is "
                "then a dict: the parser refuses “{path}”.",
                "{name} 先于 TrainingArguments 导入，在该版本的 transformers 中 --deepspeed 选项因此成为 dict：解析器会"
                "拒绝 “{path}”。",
            ).format(name=name, path=option.string),
            # What a file of the project imports before may be TrainingArguments.
            certainty=Certainty.CERTAIN if len(run.scripts) == 1 else Certainty.LIKELY,
            cure=_CURE,
            spans=(
                option.span() or launch.place.span(),
                script.place(statement).span(Text("the order of the imports", "导入顺序")),
                run.environment.field("transformers").span(Text("the faulty release", "有缺陷的版本")),
            ),
            fixes=self.fix(Text("Pin transformers 4.52.4", "固定为 transformers 4.52.4"), edit, safe=False)
            if edit is not None
            else None,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """argparse's refusal."""
        line = log.find(_SAID)
        if line is not None:
            yield self.log_finding(
                line,
                Text(
                    "The path after --deepspeed was taken for a dict: a fault of transformers 4.53, not of the file.",
                    "--deepspeed 后的路径被当作 dict：这是 transformers 4.53 的缺陷，不是该文件的问题。",
                ),
                cure=_CURE,
            )


def _imported_before_arguments(script: Script) -> tuple[ast.ImportFrom, str] | None:
    """What is taken out of transformers before its TrainingArguments, and where."""
    imports = [node for node in script.nodes(ast.ImportFrom) if (node.module or "").partition(".")[0] == "transformers"]
    for node in sorted(imports, key=lambda node: node.lineno):
        for alias in node.names:
            if alias.name.endswith("TrainingArguments"):
                return None
            if alias.name in _FIRST:
                return node, alias.name
    return None
