import ast
from collections.abc import Iterator

from gonogo.hazards.facts.training_script import first_argument
from gonogo.hazards.rule import Call, Findings, Hazard, Run, Script


class DeviceByGlobalRank(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """set_device, a device or DDP's device_ids by the global rank, in a launch of several nodes."""
        launch = run.launch
        if launch is None or b"rank" not in script.source.data.lower():
            return
        nodes, processes = launch.nodes.number, launch.processes_per_node.number
        if not isinstance(nodes, int) or nodes < 2 or not isinstance(processes, int) or processes < 2:
            return
        node = next(_devices_by_global_rank(script), None)
        if node is None:
            return
        yield self.finding(
            self.texts["cause"].format(
                rank=script.place(node).text, last=nodes * processes - 1, nodes=nodes, processes=processes
            ),
            spans=(script.place(node).span(), launch.nodes.span(), launch.place.span()),
        )


def _devices_by_global_rank(script: Script) -> Iterator[ast.expr]:
    for call in script.calls("torch.cuda.set_device", "torch.device", "*.DistributedDataParallel"):
        for node in _device_number_expressions(call):
            if _is_global_rank(script, node):
                yield node


def _device_number_expressions(call: Call) -> Iterator[ast.expr]:
    """The expressions used as a device index."""
    if call.method == "DistributedDataParallel":
        ids = call.keyword_node("device_ids")
        yield from ids.elts if isinstance(ids, ast.List) and len(ids.elts) == 1 else ()
        return
    node = call.node.args[1] if len(call.node.args) == 2 else first_argument(call, "device")
    if isinstance(node, ast.JoinedStr):  # f"cuda:{rank}"
        yield from (each.value for each in node.values if isinstance(each, ast.FormattedValue))
    elif node is not None:
        yield node


def _is_global_rank(script: Script, node: ast.expr) -> bool:
    """Whether an expression is the global rank: ``dist.get_rank()`` without a group, or the variable RANK."""
    bound = script.bound_to(node)
    if isinstance(bound, ast.Call) and script.qualified(bound.func) == "int" and len(bound.args) == 1:
        bound = bound.args[0]
    if isinstance(bound, ast.Subscript):
        key = bound.slice
        return script.qualified(bound.value) == "os.environ" and isinstance(key, ast.Constant) and key.value == "RANK"
    if not isinstance(bound, ast.Call) or bound.keywords:
        return False
    name = script.qualified(bound.func)
    if name == "torch.distributed.get_rank":
        return not bound.args
    first = bound.args[0] if bound.args else None
    return name in ("os.environ.get", "os.getenv") and isinstance(first, ast.Constant) and first.value == "RANK"
