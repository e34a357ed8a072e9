import ast
from collections import defaultdict

from gonogo.evidence.log.context import is_outside_training, uses_fsdp
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.script.identifiers import uses_name
from gonogo.hazards.facts.mismatch_in_log import LoggedDeviceMismatch, device_mismatches_in_training
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Pattern, Run, Script, translated

_OFFLOADED_PARAMETERS_PATTERN = Pattern(
    r"An FSDP-managed module with parameter CPU offloading enabled has parameters on"
    r"|An FSDP-managed module unexpectedly has parameters on"
    r"|FSDP parameters should be materialized on (?:CPU|cpu) when enabling (?:CPU|cpu) offloading"
    r"|Expects? the `?FlatParameter`? to be on CPU when parameter CPU offloading"
    r"|Expected param to be on CPU when cpu_offloading is enabled"
)
_TENSOR_ASSIGNMENT_PATTERN = Pattern(
    r"attempting to assign a gradient with device type '\w+' to a tensor with device type 'cpu'"
    r"|Attempted to set the storage of a tensor on device .cpu\b.{1,3} to a storage on different device"
    r"|Attempted to set the storage of a tensor on device .{1,12} to a storage on different device .cpu\b"
)
_CPU_COLLECTIVE_PATTERN = Pattern(r"No backend type associated with device type cpu")
# The flat parameter of an inner module is already on the CPU when the root checks it (torch before 2.0).
_DEVICE_ID_PATTERN = Pattern(r"given device_id argument cuda:\d+, but is on cpu")
_CPU_SHARD_ASSERTION_PATTERN = Pattern(r"(?:_fp32_shard|_local_shard|\bp)\.device == torch\.device\(.cpu.\)")
_FSDP_OFFLOAD_FRAMES = (
    "foreach_reduce", "_init_param_attributes", "init_flat_param_attributes", "_fsdp_collectives.py", "_fsdp_param",
    "_check_flat_params_on_expected_device", "_validate_cpu_offload_params", "fsdp/_runtime_utils.py",
    "fsdp/_flat_param.py", "fsdp/flat_param.py", "fsdp/_optim_utils.py",
)  # fmt: skip
_FSDP_FRAMES = ("fsdp", "fully_sharded_data_parallel", "_fully_shard", "composable/fsdp")
_SWITCHED_OFF_PATTERN = r"(?i)offload\w{0,20}[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:false|none|no)\b"
_SWITCHED_ON_PATTERN = r"(?i)offload\w{0,20}[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:true|cpu|yes|\{)"
_OFFLOAD_PATTERN = Pattern(
    r"(?i)offload_params|cpu_offload|offload_policy|CPUOffload|param_offload|optimizer_offload|CPU offloading"
)


class FsdpCpuOffloadDeviceMismatch(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A model that is moved to the GPU after FSDP has wrapped it with parameter offload."""
        if b"CPUOffload" not in script.source.data:
            return
        moves: dict[tuple[ast.AST | None, str], list[ast.stmt]] | None = None
        for wrap in script.calls("*.FullyShardedDataParallel", "torch.distributed.fsdp.FSDP"):
            offload = wrap.keyword_node("cpu_offload")
            statement = script.statement(wrap.node)
            if not isinstance(offload, ast.Call) or not isinstance(statement, ast.Assign):
                continue
            made = script.call_at(offload)
            on = made.keyword("offload_params") if not offload.args else made.argument(0)
            target = statement.targets[0]
            if on.truth is not True or not isinstance(target, ast.Name):
                continue
            if moves is None:
                moves = _device_moves(script)
            for move in moves.get((script.enclosing_function(statement), target.id), ()):
                if move.lineno <= statement.lineno:
                    continue
                edit = script.removing_statement(move)
                yield self.finding(
                    self.texts["cause_in_script"].format(name=target.id),
                    cure=(
                        translated("Remove {move}").format(move=script.place(move).text),
                        translated("Or leave cpu_offload out"),
                    ),
                    spans=(script.place(move).span(), wrap.place.span(translated("wrapped with offload here"))),
                    fixes=self.fix(translated("Leave the parameters where FSDP keeps them"), edit)
                    if edit is not None
                    else None,
                )

    def in_log(self, log: FailureLog) -> Findings:
        """FSDP's own error; a mismatch raised inside FSDP; a GPU gradient for a CPU parameter."""
        if is_outside_training(log):
            return
        for error in log.errors:
            certainty = _judge_certainty(error, log)
            if certainty is not None:
                yield self._build_finding(error, certainty)
        for pattern in (_OFFLOADED_PARAMETERS_PATTERN, _TENSOR_ASSIGNMENT_PATTERN):
            if not any(pattern.search(error.message) for error in log.errors) and (line := log.find(pattern)):
                yield self._build_finding(
                    line, Certainty.CERTAIN if pattern is _OFFLOADED_PARAMETERS_PATTERN else Certainty.LIKELY
                )
        if not log.errors and (
            cut := find_truncated_error(log, ("fsdp", "foreach_reduce"), ("", "_init_param_attributes"), max_frames=1)
        ):
            yield self._build_finding(cut, Certainty.LIKELY)
        for mismatch in device_mismatches_in_training(log):
            if (
                mismatch.involves_cpu
                and not mismatch.is_between_accelerators
                and not _TENSOR_ASSIGNMENT_PATTERN.search(_mismatch_message(mismatch))
            ):
                if mismatch.passes(*_FSDP_OFFLOAD_FRAMES):
                    yield self._build_finding(mismatch.evidence, Certainty.LIKELY)
                elif _is_switched_off(log):
                    continue  # Something else moved the model.
                elif mismatch.passes(*_FSDP_FRAMES) or (not mismatch.frames and uses_fsdp(log)):
                    offloads = log.find(_OFFLOAD_PATTERN) is not None or log.setup.mentions(_OFFLOAD_PATTERN.text)
                    likely = offloads and (not mismatch.frames or "clip_grad" in str(mismatch.frames[-1]))
                    yield self._build_finding(mismatch.evidence, Certainty.LIKELY if likely else Certainty.POSSIBLE)

    def _build_finding(self, evidence: LoggedError | LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(evidence, certainty=certainty)


def _is_switched_off(log: FailureLog) -> bool:
    """Whether the run's settings name an offload, and none of them is on."""
    return log.setup.mentions(_SWITCHED_OFF_PATTERN) and not log.setup.mentions(_SWITCHED_ON_PATTERN)


def _mismatch_message(mismatch: LoggedDeviceMismatch) -> str:
    evidence = mismatch.evidence
    return evidence.message if isinstance(evidence, LoggedError) else evidence.text


def _judge_certainty(error: LoggedError, log: FailureLog) -> Certainty | None:
    if _OFFLOADED_PARAMETERS_PATTERN.search(error.message):
        return Certainty.CERTAIN
    inside = error.passes(*_FSDP_FRAMES)
    if _TENSOR_ASSIGNMENT_PATTERN.search(error.message):
        return (
            Certainty.CERTAIN
            if inside
            else Certainty.POSSIBLE
            if error.frames and not uses_fsdp(log)
            else Certainty.LIKELY
        )
    if _DEVICE_ID_PATTERN.search(error.message):
        offloads = log.find(_OFFLOAD_PATTERN) is not None or log.setup.mentions(_OFFLOAD_PATTERN.text)
        return Certainty.LIKELY if offloads else None
    if "Non-root FSDP instance" in error.message or "not compiled with CUDA" in error.message:
        return None
    if error.type == "AssertionError" and error.passes("_init_param_attributes", "_lazy_init") and inside:
        code = error.innermost.code if error.innermost else ""
        return (
            Certainty.CERTAIN
            if _CPU_SHARD_ASSERTION_PATTERN.search(code) or "cpu" in error.message.lower()
            else Certainty.LIKELY
        )
    if _CPU_COLLECTIVE_PATTERN.search(error.message) and (inside or uses_fsdp(log)):
        offloads = log.find(_OFFLOAD_PATTERN) is not None or log.setup.mentions(_OFFLOAD_PATTERN.text)
        return Certainty.LIKELY if offloads or inside else Certainty.POSSIBLE
    return None


def _targets_gpu(call: ast.Call) -> bool:
    given = (*call.args, *(keyword.value for keyword in call.keywords))
    texts = [each.value for each in given if isinstance(each, ast.Constant)]
    named = any(uses_name(each, "cuda", "rank", "device") for each in given) or any(
        keyword.arg == "device" for keyword in call.keywords
    )
    return named or any(isinstance(text, str) and text.startswith("cuda") for text in texts)


def _device_moves(script: Script) -> dict[tuple[ast.AST | None, str], list[ast.stmt]]:
    """Statements that only move an object to the GPU, by their function and the object's name."""
    found: dict[tuple[ast.AST | None, str], list[ast.stmt]] = defaultdict(list)
    for call in script.index.calls:
        func, statement = call.func, script.statement(call)
        if not isinstance(func, ast.Attribute) or func.attr not in ("cuda", "to") or statement is None:
            continue
        value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
        if isinstance(func.value, ast.Name) and value is call and (func.attr == "cuda" or _targets_gpu(call)):
            found[script.enclosing_function(statement), func.value.id].append(statement)
    return found
