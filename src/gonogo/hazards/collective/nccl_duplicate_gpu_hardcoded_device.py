import ast
from collections.abc import Iterator

from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.number import parse_whole_number
from gonogo.evidence.script.nodes import dotted_name
from gonogo.hazards.facts.duplicate_gpu import HARDCODED_DEVICE_PATTERN, DuplicateGpu, find_duplicate_gpu
from gonogo.hazards.facts.training_script import DDP, first_argument, has_several_processes_per_node, run_mentions
from gonogo.hazards.rule import Certainty, Edit, FailureLog, Findings, Fix, Hazard, Run, Script, translated

_LOCAL_RANK_EXPRESSION = 'int(os.environ["LOCAL_RANK"])'


class NcclDuplicateGpuHardcodedDevice(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A model that is wrapped in DDP on the same GPU by every process of a node."""
        if b"DistributedDataParallel" not in script.source.data or not has_several_processes_per_node(run):
            return
        backend = _requested_backend(script)
        if backend == "gloo" or run_mentions(run, script, b"CUDA_VISIBLE_DEVICES", b"accelerate", b"deepspeed"):
            return
        pinned = _pinned_devices(script)
        if not pinned and not _never_selects_device(script, run):
            return
        assert run.launch is not None
        size = run.launch.processes_per_node.number or run.world_size
        spans = [script.place(node).span() for node, _ in pinned] or [
            script.place(one).span() for one in _moves_to_current_gpu(script)
        ]
        if not spans:
            return
        yield self.finding(
            self.texts["cause_in_script"].format(
                size=size,
                device=f"GPU {pinned[0][1]}"
                if pinned
                else translated("GPU 0, since nothing calls torch.cuda.set_device"),
            ),
            certainty=Certainty.CERTAIN if backend == "nccl" else Certainty.LIKELY,
            cure=(
                translated("Use the local rank's GPU instead: int(os.environ['LOCAL_RANK'])")
                if pinned
                else self.texts["cure"]
            ),
            spans=(
                *spans,
                run.launch.place.span(translated("the launch starts {size} processes per node").format(size=size)),
            ),
            fixes=_local_rank_fixes(self, script, pinned),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """NCCL's error about a duplicate GPU, unless there are more ranks than GPUs."""
        duplicate = find_duplicate_gpu(log)
        if duplicate is None:
            return
        yield self.log_finding(
            duplicate.evidence,
            self.texts["cause_in_log"].format(ranks=duplicate.rank_list, device=duplicate.device or "?"),
            certainty=_judge_certainty(log, duplicate),
            confirm=self.texts["confirm"],
        )


def _judge_certainty(log: FailureLog, duplicate_devices: DuplicateGpu) -> Certainty:
    if duplicate_devices.too_many_ranks or is_outside_training(log):
        return Certainty.POSSIBLE
    if log.setup.mentions(HARDCODED_DEVICE_PATTERN):
        return Certainty.CERTAIN
    # Without the numbers of processes and GPUs, the message may also mean too few GPUs.
    return Certainty.LIKELY if duplicate_devices.enough_gpus else Certainty.POSSIBLE


def _requested_backend(script: Script) -> str | None:
    """The backend that the script asks for; "nccl" if it names none, since torch then uses NCCL for GPUs."""
    for call in script.calls("torch.distributed.init_process_group"):
        given = call.argument(0) if call.node.args else call.keyword("backend")
        return "nccl" if given.absent or "nccl" in str(given.value) else given.string
    return None


def _local_rank_fixes(hazard: Hazard, script: Script, pinned: list[tuple[ast.AST, int]]) -> tuple[Fix, ...]:
    edits = _replace_pinned_devices(script, pinned) if pinned else _insert_set_device(script)
    if not edits:
        return ()
    return (hazard.fix(translated("Use the GPU of the local rank"), *edits),)


def _pinned_devices(script: Script) -> list[tuple[ast.AST, int]]:
    """The expressions that name one GPU for the model or the process, with its index, in file order."""
    found: list[tuple[ast.AST, int]] = []
    for call in script.calls("torch.cuda.set_device"):
        node = first_argument(call, "device")
        number = _constant_gpu_index(script, node)
        if node is not None and number is not None and not script.guarded_by(call.node):
            found.append((node, number))
    for call in script.calls(DDP):
        ids = call.keyword_node("device_ids")
        if (
            isinstance(ids, ast.List)
            and len(ids.elts) == 1
            and (number := _constant_gpu_index(script, ids.elts[0])) is not None
        ):
            found.append((ids.elts[0], number))
    found.extend(
        (node.args[0], number)
        for node in _device_moves(script, _names_of_wrapped_models(script))
        if node.args
        and (number := _constant_gpu_index(script, node.args[0])) is not None
        and not script.guarded_by(node)
    )
    return sorted(set(found), key=lambda pin: (pin[0].lineno, pin[0].col_offset))  # type: ignore[attr-defined]


def _names_of_wrapped_models(script: Script) -> set[str]:
    """The names that are passed to DDP."""
    models = (first_argument(call, "module") for call in script.calls(DDP))
    return {model.id for model in models if isinstance(model, ast.Name)}


def _device_moves(script: Script, names: set[str]) -> Iterator[ast.Call]:
    """The calls of ``to`` and ``cuda`` on the objects of these names."""
    for node in script.index.calls if names else ():
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda"):
            continue
        statement = script.statement(node)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(isinstance(each, ast.Name) and each.id in names for each in (func.value, *targets)):
            yield node


def _constant_gpu_index(script: Script, node: ast.expr | None) -> int | None:
    """The GPU index in a constant expression."""
    if isinstance(node, ast.Call) and script.qualified(node.func) == "torch.device" and len(node.args) == 1:
        node = node.args[0]
    if not isinstance(node, ast.Constant):
        return None
    value = node.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value.removeprefix("cuda:") if isinstance(value, str) and value.startswith("cuda:") else ""
    return parse_whole_number(text)


def _moves_to_current_gpu(script: Script) -> list[ast.Call]:
    """The calls that move DDP models to the current GPU, whichever that is."""
    wrapped = (first_argument(call, "module") for call in script.calls(DDP))
    moves = [model for model in wrapped if isinstance(model, ast.Call)]
    found: list[ast.Call] = []
    for node in (*moves, *_device_moves(script, _names_of_wrapped_models(script))):
        func = node.func
        if not isinstance(func, ast.Attribute):
            continue
        current = not node.args and not node.keywords if func.attr == "cuda" else func.attr == "to"
        if current and (func.attr == "cuda" or (node.args and _is_bare_cuda_string(node.args[0]))):
            found.append(node)
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _is_bare_cuda_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "cuda"


def _never_selects_device(script: Script, run: Run) -> bool:
    """Whether no process of the run selects a GPU in any known way."""
    return not run_mentions(
        run, script, b"set_device", b"cuda.device(", b"device_id", b"default_device", b"local_rank)"
    )


def _is_cuda_device_literal(node: ast.AST) -> bool:
    """Whether a node is ``"cuda:0"`` or ``torch.device("cuda:0")``, not the index alone."""
    if isinstance(node, ast.Call):
        return dotted_name(node.func) == "torch.device"
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda:")


def _replace_pinned_devices(script: Script, pinned: list[tuple[ast.AST, int]]) -> tuple[Edit, ...]:
    """Edits that replace each index by the local rank; none if the script names the GPU elsewhere too."""
    words = sum(script.source.data.count(word) for word in (b'"cuda:', b"'cuda:", b".cuda(0)"))
    own = sum(_is_cuda_device_literal(node) for node, _ in pinned)
    cuda = sum(script.source.data[script.place(node).start - 6 :].startswith(b".cuda(") for node, _ in pinned)
    if words > own + cuda:
        return ()
    edits = [script.replacing(node, _LOCAL_RANK_EXPRESSION) for node, _ in pinned]
    return _with_os_import(script, edits)


def _insert_set_device(script: Script) -> tuple[Edit, ...]:
    """Edits that select the local rank's GPU right after the process group is created."""
    for call in script.calls("torch.distributed.init_process_group"):
        statement = script.statement(call.node)
        if statement is not None:
            return _with_os_import(
                script, [script.inserting_after(statement, f"torch.cuda.set_device({_LOCAL_RANK_EXPRESSION})")]
            )
    return ()


def _with_os_import(script: Script, edits: list[Edit | None]) -> tuple[Edit, ...]:
    if not script.imports("os"):
        edits.insert(0, script.inserting_import("import os"))
    return tuple(edit for edit in edits if edit is not None) if all(edit is not None for edit in edits) else ()
