import ast

from gonogo.evidence.script.identifiers import last_name, same_code, words
from gonogo.hazards.rule import Call, Findings, Hazard, Launch, Run, Text

# What may turn the text into something else on its way.
_TURNED = (
    b"strtobool",
    b"str2bool",
    b'"True"',
    b"'True'",
    b'"true"',
    b"'true'",
    b".lower()",
    b"resume_from_checkpoint: bool",
)


class CheckpointResumeTrueAsText(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The word true as an option of a script that hands it to the Trainer unchanged."""
        given = launch.options.get("resume_from_checkpoint")
        if str(given.value).lower() not in ("true", "false") or launch.framework is not None or given.place is None:
            return
        handed = [call for script in run.scripts for call in script.calls("*.train") if _hands_on(call)]
        if not handed or any(word in one.source.data for one in run.scripts for word in _TURNED):
            return
        yield self.finding(
            Text(
                'The Trainer looks for a checkpoint in a folder called "{given}".',
                "Trainer 会在名为 “{given}” 的目录中寻找 checkpoint。",
            ).format(given=given.value),
            cure=(
                Text(
                    "Name the folder: --resume_from_checkpoint {output}/checkpoint-STEPS",
                    "写出目录：--resume_from_checkpoint {output}/checkpoint-步数",
                ).format(output=run.arguments.get("output_dir").string or "OUTPUT_DIR"),
                Text(
                    "Or let the script look: trainer.train(resume_from_checkpoint=get_last_checkpoint(output_dir))",
                    "或由脚本寻找：trainer.train(resume_from_checkpoint=get_last_checkpoint(output_dir))",
                ),
            ),
            spans=(given.span(), handed[0].place.span(Text("passed on as text", "作为文本传递"))),
        )


def _hands_on(call: Call) -> bool:
    """Whether ``train`` is given the argument's own value."""
    node = call.keyword_node("resume_from_checkpoint")
    if isinstance(node, ast.Name):
        found = [one for one in call.script.nodes(ast.Assign) if same_code(one.targets[0], node)]
        return any(_is_the_argument(one.value) for one in found)
    return node is not None and _is_the_argument(node)


def _is_the_argument(node: ast.expr) -> bool:
    """``args.resume_from_checkpoint``, ``training_args.resume_from_checkpoint``, as it is."""
    if not isinstance(node, ast.Attribute) or node.attr != "resume_from_checkpoint":
        return False
    return words(last_name(node.value))[-1:] == ("args",)
