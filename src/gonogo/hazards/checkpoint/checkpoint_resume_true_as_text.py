import ast

from gonogo.evidence.script.identifiers import last_name, same_code, split_identifier
from gonogo.hazards.rule import Call, Findings, Hazard, Launch, Run, translated

# Code that may convert the string into something else.
_CONVERSION_MARKERS = (
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
        """The string ``true`` as an option of a script that passes it to the Trainer unchanged."""
        given = launch.options.get("resume_from_checkpoint")
        if str(given.value).lower() not in ("true", "false") or launch.framework is not None or given.place is None:
            return
        handed = [
            call for script in run.scripts for call in script.calls("*.train") if _passes_argument_unchanged(call)
        ]
        if not handed or any(word in one.source.data for one in run.scripts for word in _CONVERSION_MARKERS):
            return
        yield self.finding(
            translated('The Trainer looks for a checkpoint in a folder called "{given}".').format(given=given.value),
            cure=(
                translated("Pass the checkpoint's folder: --resume_from_checkpoint {output}/checkpoint-STEPS").format(
                    output=run.arguments.get("output_dir").string or "OUTPUT_DIR"
                ),
                self.texts["cure"],
            ),
            spans=(given.span(), handed[0].place.span(translated("passed on as a string"))),
        )


def _passes_argument_unchanged(call: Call) -> bool:
    """Whether ``train`` is given the argument's own value."""
    node = call.keyword_node("resume_from_checkpoint")
    if isinstance(node, ast.Name):
        found = [one for one in call.script.nodes(ast.Assign) if same_code(one.targets[0], node)]
        return any(_is_resume_argument(one.value) for one in found)
    return node is not None and _is_resume_argument(node)


def _is_resume_argument(node: ast.expr) -> bool:
    """Whether a node is ``args.resume_from_checkpoint`` or ``training_args.resume_from_checkpoint``, unchanged."""
    if not isinstance(node, ast.Attribute) or node.attr != "resume_from_checkpoint":
        return False
    return split_identifier(last_name(node.value))[-1:] == ("args",)
