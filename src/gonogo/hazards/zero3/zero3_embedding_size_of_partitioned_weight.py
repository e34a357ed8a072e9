import ast

from gonogo.hazards.facts.zero_usage import is_in_gathered_parameters, is_under_zero_condition, source_text, stage_span
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated
from gonogo.hazards.zero3._loading import is_zero3_configured_at


class Zero3EmbeddingSizeOfPartitionedWeight(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """An embedding size that is read from the shape of the partitioned weight."""
        if run.zero_stage != 3 or b"put_embeddings()" not in script.source.data:
            return
        for node in script.nodes(ast.Subscript):
            found = _embedding_layer_and_getter(script, node)
            if found is None or is_in_gathered_parameters(script, node) or is_under_zero_condition(script, node):
                continue
            if is_zero3_configured_at(script, node) is False:
                continue
            layer, method = found
            edit = script.replacing(node, source_text(script, layer, 500) + ".num_embeddings")
            yield self.finding(
                self.texts["cause"].format(code=source_text(script, node)),
                spans=(script.place(node).span(), stage_span(run)),
                fixes=self.fix(translated("Read the layer's num_embeddings"), edit, safe=False)
                if edit and method == "get_input_embeddings"
                else None,
            )


def _embedding_layer_and_getter(script: Script, node: ast.Subscript) -> tuple[ast.expr, str] | None:
    """The layer in ``….weight.shape[0]`` and the method that returns it, such as ``get_input_embeddings``."""
    shape = node.value
    if not isinstance(shape, ast.Attribute) or shape.attr != "shape" or not isinstance(node.slice, ast.Constant):
        return None
    weight = script.bound_to(shape.value)
    if node.slice.value != 0 or not isinstance(weight, ast.Attribute) or weight.attr != "weight":
        return None
    made = script.bound_to(weight.value)
    method = script.call_at(made).method if isinstance(made, ast.Call) else ""
    return (weight.value, method) if method in ("get_input_embeddings", "get_output_embeddings") else None
