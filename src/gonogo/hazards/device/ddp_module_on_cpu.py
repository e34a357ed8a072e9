import ast

from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.script.identifiers import uses_name
from gonogo.hazards.facts.device_map import parameter_devices, without_cpu_devices
from gonogo.hazards.facts.training_script import DDP, creating_calls, first_argument, run_mentions
from gonogo.hazards.rule import Call, Certainty, Finding, Findings, Hazard, Pattern, Run, Script, translated

_DDP_DEVICE_IDS_PATTERN = Pattern(r"DistributedDataParallel device_ids and output_device arguments only work with")
_MIXED_DEVICES_PATTERN = Pattern(r"DistributedDataParallel's input module must be on the same type of devices")
_NO_CPU_BACKEND_PATTERN = Pattern(r"No backend type associated with device type cpu|[Tt]ensors must be CUDA and dense")

# Code that places modules on a device without a visible move.
_PLACEMENT_MARKERS = (
    b"set_default_device",
    b"set_default_tensor_type",
    b"with torch.device",
    b"device_map",
    b"deepspeed",
    b"fabric",
)
_DEVICE_MOVING_METHODS = frozenset(("to", "cuda", "npu", "xpu", "to_empty"))


class DdpModuleOnCpu(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """DDP with device_ids around a module that nothing has moved to the GPU."""
        if b"DistributedDataParallel" not in script.source.data or run_mentions(run, script, *_PLACEMENT_MARKERS):
            return
        for call in script.calls(DDP):
            ids, node = call.keyword_node("device_ids"), first_argument(call, "module")
            if not isinstance(ids, ast.List) or len(ids.elts) != 1 or not isinstance(node, ast.Name):
                continue
            made = creating_calls(script, node)
            if (
                not made
                or script.guarded_by(call.node)
                or _may_be_moved(script, node)
                or _may_move_itself(script, made, script.enclosing_function(call.node))
            ):
                continue
            statement = script.statement(call.node)
            device = script.place(ids.elts[0]).text
            edit = script.inserting_before(statement, f"{node.id}.to({device})") if statement is not None else None
            yield self.finding(
                self.texts["cause_in_script"].format(device=device, name=node.id),
                spans=(script.place(call.node).span(), made[0].place.span(translated("created here, on the CPU"))),
                fixes=self.fix(translated("Move the model to the GPU before DDP wraps it"), edit)
                if edit is not None
                else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """DDP's error that lists the CPU, or NCCL's error in DDP's constructor."""
        if is_outside_training(log):
            return
        for error in log.errors:
            certainty = _judge_certainty(error)
            if certainty is not None:
                yield self._build_finding(error, certainty)
        if not log.errors:
            for pattern in (_DDP_DEVICE_IDS_PATTERN, _MIXED_DEVICES_PATTERN):
                if line := log.find(pattern):
                    text = " ".join((line.text, *(other.text for other in log.lines_after(line.line, 2))))
                    if pattern is _MIXED_DEVICES_PATTERN or "cpu" in parameter_devices(text):
                        yield self._build_finding(line, Certainty.CERTAIN)

    def _build_finding(self, evidence: LoggedError | LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(evidence, certainty=certainty)


def _judge_certainty(error: LoggedError) -> Certainty | None:
    if _DDP_DEVICE_IDS_PATTERN.search(error.message):
        devices = parameter_devices(error.message)
        return Certainty.CERTAIN if "cpu" in devices and len(without_cpu_devices(devices)) < 2 else None
    if _MIXED_DEVICES_PATTERN.search(error.message):
        return Certainty.CERTAIN if "cpu" in error.message else None
    wraps = error.frame("nn/parallel/distributed.py")
    if _NO_CPU_BACKEND_PATTERN.search(error.message) and wraps is not None:
        verifies = error.passes("_verify_param_shape", "_sync_module_states", "_sync_params_and_buffers")
        return Certainty.LIKELY if verifies else Certainty.POSSIBLE
    return None


def _may_be_moved(script: Script, node: ast.Name) -> bool:
    """Whether the script moves the object of this name, or passes it to a function that might."""
    for call in script.index.calls:
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in _DEVICE_MOVING_METHODS:
            inner: ast.AST = func.value
            while isinstance(inner, (ast.Attribute, ast.Call)):
                inner = inner.func if isinstance(inner, ast.Call) else inner.value
            if isinstance(inner, ast.Name) and inner.id == node.id:
                return True
        given = any(isinstance(each, ast.Name) and each.id == node.id and each is not node for each in call.args)
        if given and isinstance(func, ast.Name) and script.qualified(func) != DDP:
            return True
    return False


def _is_device_move(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda")


def _mentions_cuda(node: ast.AST) -> bool:
    """Whether code mentions a GPU: a name, or a string like ``"cuda:0"``."""
    texts = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str))
    return uses_name(node, "cuda") or any(text.startswith("cuda") for text in texts)


def _may_move_itself(script: Script, model_calls: tuple[Call, ...], ddp_function: ast.AST | None) -> bool:
    """Whether the code that creates the model may move it to a GPU, or can't be read."""
    for call in model_calls:
        around = script.enclosing_function(call.node)
        written = script.statement(call.node) if around is ddp_function else around
        if written is not None and any(map(_is_device_move, ast.walk(written))):
            return True
        if call.method == "from_pretrained" or call.name.startswith(("torchvision.models.", "torch.nn.", "timm.")):
            continue
        if any(isinstance(word, ast.Attribute) and word.attr in ("to", "cuda") for word in ast.walk(call.node)):
            return True
        owner = next((one for one in script.classes if one.name == call.name), None)
        if owner is None or _mentions_cuda(owner.node) or "device" in call.keywords:
            return True
    return False
