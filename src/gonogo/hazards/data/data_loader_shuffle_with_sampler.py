import ast
from collections.abc import Iterator

from gonogo.evidence.script.nodes import is_none
from gonogo.hazards.facts.training_script import creating_calls
from gonogo.hazards.rule import Call, Findings, Hazard, Run, Script, translated

_EXCLUDED_ARGUMENTS = {"sampler": ("shuffle",), "batch_sampler": ("shuffle", "batch_size", "drop_last", "sampler")}


class DataLoaderShuffleWithSampler(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """DataLoaders that certainly get a sampler and an argument that excludes it, such as shuffle=True."""
        if b"sampler" not in script.source.data:
            return
        optional = _names_that_may_be_none(script)
        for call in script.calls("torch.utils.data.DataLoader"):
            given = (by for by in ("batch_sampler", "sampler") if _is_sampler_given(script, call, by, optional))
            by = next(given, None)
            if by is None:
                continue
            excluded = [name for name in _EXCLUDED_ARGUMENTS[by] if _excludes_sampler(call, name)]
            edits = [script.removing_keyword(call, name) for name in excluded]
            places = [place.span() for name in excluded if (place := call.keyword_place(name)) is not None]
            if not excluded or not places:
                continue
            own = call.keyword_place(by)
            yield self.finding(
                self.texts["cause"].format(by=by, excluded=", ".join(excluded)),
                cure=translated("Drop {excluded} from the DataLoader{shuffles}").format(
                    excluded=", ".join(excluded),
                    shuffles=translated("; a DistributedSampler shuffles by itself") if "shuffle" in excluded else "",
                ),
                spans=(*places, own.span(translated("the sampler decides the order")) if own is not None else None),
                fixes=self.fix(
                    translated("Drop the arguments that the sampler replaces"),
                    *(edit for edit in edits if edit is not None),
                )
                if len(edits) == 1 and edits[0] is not None
                else None,
            )


def _is_sampler_given(script: Script, call: Call, name: str, optional: set[str]) -> bool:
    """Whether a sampler is certainly given: a call, or a name to which only calls are assigned."""
    node = call.keyword_node(name)
    passed = call.passed_keyword(name)
    if node is None or passed is None or not passed.certain:
        return False
    if isinstance(node, ast.Call):
        return True
    if not isinstance(node, ast.Name):
        return False
    return node.id not in optional and bool(creating_calls(script, node))


def _names_that_may_be_none(script: Script) -> set[str]:
    """The names to which None is assigned somewhere, as one of several values or alone."""
    return {
        target.id
        for node in script.nodes(ast.Assign)
        if any(map(is_none, _possible_values(node.value)))
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _possible_values(value: ast.expr) -> Iterator[ast.expr]:
    """The possible values of an expression: the branches of a conditional, the parts of ``made or None``."""
    if isinstance(value, ast.IfExp):
        yield from (*_possible_values(value.body), *_possible_values(value.orelse))
    elif isinstance(value, ast.BoolOp):
        yield from (each for part in value.values for each in _possible_values(part))
    else:
        yield value


def _excludes_sampler(call: Call, name: str) -> bool:
    """Whether an argument is given a value that excludes a sampler."""
    field = call.keyword(name)
    if name in ("shuffle", "drop_last"):
        return field.truth is True
    if name == "batch_size":
        return field.number not in (None, 1)
    return False
