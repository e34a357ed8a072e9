import ast

from gonogo.evidence.training_arguments import TRAINER_CLASSES
from gonogo.hazards.rule import Edit, Findings, Hazard, Run, Script, translated


class TrainerOverrideWithoutNumItems(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """Overrides without ``num_items_in_batch``, under a transformers that passes it."""
        data = script.source.data
        if b"def compute_loss" not in data and b"def training_step" not in data:
            return
        if run.environment.within("transformers", ">=4.46") is not True:
            return
        version = run.environment.field("transformers")
        for owner in script.subclasses(*TRAINER_CLASSES):
            for name, positional in (("compute_loss", False), ("training_step", True)):
                method = owner.methods.get(name)
                if method is None or _accepts_num_items(method, positional) or method.decorator_list:
                    continue
                edit = _add_parameter_edit(script, method)
                yield self.finding(
                    self.texts["cause"].format(version=version.get(">= 4.46"), owner=owner.name, name=name),
                    spans=(
                        script.first_line_place(method).span(),
                        version.span(translated("transformers has passed num_items_in_batch since 4.46")),
                    ),
                    fixes=self.fix(translated("Use the argument"), edit) if edit is not None else None,
                )


_Method = ast.FunctionDef | ast.AsyncFunctionDef


def _accepts_num_items(method: _Method, positional: bool) -> bool:
    """Whether a method accepts ``num_items_in_batch``: by name, through ``**kwargs``, or by position."""
    arguments = method.args
    names = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    if "num_items_in_batch" in names or (arguments.kwarg is not None and not positional):
        return True
    return positional and (arguments.vararg is not None or len(arguments.args) > 3)


def _add_parameter_edit(script: Script, method: _Method) -> Edit | None:
    """Adds the parameter at the end of the signature; None if that has other than plain parameters."""
    arguments = method.args
    if arguments.vararg or arguments.kwonlyargs or arguments.kwarg or not arguments.args or not script.editable:
        return None
    last: ast.AST = arguments.defaults[-1] if arguments.defaults else arguments.args[-1]
    end = script.place(last).end
    return script.source.place(end, end).edit(", num_items_in_batch=None")
