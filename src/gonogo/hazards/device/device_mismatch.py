from collections.abc import Iterator, Mapping

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.device_mismatch import MixedDevices, device_mismatch
from gonogo.evidence.rehearsal.failures import (
    FailedRanks,
    describe_operands,
    failed_ranks,
    failure_places,
    last_frame_outside_torch,
    shorten_exception_message,
)
from gonogo.evidence.rehearsal.record import Failure, Frame, Operand
from gonogo.hazards.device._batch_to_engine import move_batch_to_engine
from gonogo.hazards.facts.mismatch_in_log import MisplacedTensor, all_device_mismatches
from gonogo.hazards.rule import Certainty, Finding, Findings, Fix, Hazard, RehearsalRecord, Run, Text, translated

_MOVE_INPUT = translated(
    "Move the batch to the model's device before the forward, and create tensors where they are used (device=x.device)"
)
_MOVE_MODULE = translated(
    "Move the part that the line belongs to along with the model, after everything that creates or replaces it: "
    "module.to(device)"
)
_TRY_NEWER_VERSION = translated("If the line is in a library or a model's remote code: try a newer version of it")

_OWNER_CURES: dict[MisplacedTensor, tuple[Text, ...]] = {
    MisplacedTensor.GRADIENT: (
        translated(
            "Use another version of the engine that offloads (DeepSpeed >= 0.14.3), or don't offload the optimizer"
        ),
    ),
    MisplacedTensor.OPTIMIZER: (
        translated(
            "Load the optimizer's state after the model is on its device, and create the optimizer after "
            "model.to; its state must be on the parameters' device (upgrade torch if load_state_dict puts it "
            "elsewhere)"
        ),
    ),
    MisplacedTensor.QUANTIZED: (
        translated(
            'Load the quantized model whole onto the process\'s GPU: device_map={"": local_rank}, with no CPU offload'
        ),
    ),
    MisplacedTensor.ADAPTER: (
        translated("Upgrade PEFT, or move the adapter's parameters to the base weight's device after get_peft_model"),
    ),
    MisplacedTensor.SUBMODULE: (
        translated(
            "Do not build the part if it is not trained, or upgrade the package that defines it; ZeRO-2 "
            "builds it without zero.Init"
        ),
    ),
    MisplacedTensor.ROTARY: (
        translated("Upgrade transformers or the model's code, or move cos and sin to q.device before they are used"),
    ),
    MisplacedTensor.BUFFER: (
        translated("Register the tensor with register_buffer, or move it where it is used: self.buffer.to(x.device)"),
        _MOVE_INPUT,
    ),
    MisplacedTensor.INPUT: (_MOVE_INPUT,),
    MisplacedTensor.WEIGHT: (_MOVE_MODULE,),
    MisplacedTensor.UNKNOWN: (_MOVE_INPUT, _MOVE_MODULE, _TRY_NEWER_VERSION),
}


class DeviceMismatch(Hazard):
    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Move what is passed to the engine to its device."""
        yield from move_batch_to_engine(record, run)

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Any device mismatch, with operator, operands and module."""
        for failed in failed_ranks(record):
            failure = failed.failure
            mismatch = device_mismatch(failure)
            if mismatch is None:
                continue
            odd = _misplaced_operand(failure, mismatch)
            caller = last_frame_outside_torch(failure)
            yield self.finding(
                translated("In {module}: {what}.{culprit}").format(
                    module=failure.module or (caller.function if caller else "?"),
                    what=translated("{operator} got {operands}").format(
                        operator=failure.operator or translated("an operator"),
                        operands=describe_operands(failure.operands),
                    )
                    if failure.operands
                    else shorten_exception_message(failure.message),
                    culprit=_describe_misplaced(odd),
                ),
                cure=_choose_cures(failed, odd, caller),
                spans=failure_places(failure),
                ranks=failed.ranks,
                module=failure.module,
                parameter=odd.parameter if odd else None,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """Any mismatch that no narrower hazard is sure of, with operator, operands, module and the likely owner."""
        for mismatch in all_device_mismatches(log):
            if mismatch.outside_model:
                continue
            yield self.log_finding(
                mismatch.evidence,
                translated("{mismatch}. The misplaced tensor is probably {owner}.").format(
                    mismatch=mismatch.sentence, owner=mismatch.likely_tensor.value
                ),
                cure=_OWNER_CURES[mismatch.likely_tensor],
                certainty=Certainty.POSSIBLE,
                module=mismatch.module,
            )


def _misplaced_operand(failure: Failure, mismatch: MixedDevices) -> Operand | None:
    """The operand that is on the wrong device: the one on the CPU, else the one that the message names."""
    with_shape = [operand for operand in failure.operands if operand.shape]
    without_data = next((operand for operand in with_shape if operand.device == "meta"), None)
    return without_data or next(
        (operand for operand in with_shape if operand.device == "cpu"),
        next((operand for operand in with_shape if operand.name == mismatch.argument), None),
    )


def _describe_misplaced(odd_operand: Operand | None) -> Text:
    if odd_operand is None:
        return Text("", "")
    kinds = {
        "parameter": translated("a parameter"),
        "buffer": translated("a buffer"),
        "input": translated("an input of the model"),
        "gradient": translated("a gradient"),
        "optimizer": translated("optimizer state"),
    }
    unknown = translated("a tensor outside any module: an input or one created on the fly")
    kind = kinds.get(odd_operand.kind, unknown)
    name = f" {odd_operand.parameter}" if odd_operand.parameter else ""
    return Text(
        f" Out of place is {odd_operand.name}: {kind.en}{name} on {odd_operand.device}.",
        f"放错位置的是 {odd_operand.name}：{odd_operand.device} 上的{kind.zh}{name}。",
    )


def _choose_cures(failed_group: FailedRanks, odd_operand: Operand | None, caller: Frame | None) -> tuple[Text, ...]:
    move_input = translated(
        "Move the batch to the model before the forward: batch = {k: v.to(model.device) for k, v in …}"
    )
    make_there = translated(
        "Create the tensor on the device of the one it is combined with (device=x.device), or, if it is kept in "
        "self, register it with register_buffer so that it moves with the module"
    )
    cures = [make_there]
    if odd_operand is not None and odd_operand.kind in ("parameter", "buffer"):
        cures = [
            translated(
                "Move {name} with its module before training begins: module.to(device), after everything that "
                "creates or replaces it"
            ).format(name=odd_operand.parameter or odd_operand.name)
        ]
    elif odd_operand is not None and odd_operand.kind == "input":
        cures = [move_input]
    elif odd_operand is not None and odd_operand.kind == "unknown" and not failed_group.is_under_zero_init:
        # Token IDs, labels and masks come from the batch; floating-point tensors are more likely created on the way.
        whole = odd_operand.dtype.removeprefix("torch.").startswith(("int", "uint", "bool"))
        cures = [move_input, make_there] if whole else [make_there, move_input]
    if failed_group.is_under_zero_init:
        cures.append(
            translated(
                "deepspeed.zero.Init moves only torch.tensor, empty, zeros, ones, full, arange, eye and randn to "
                "the GPU: pass device= to the others too, or build this part outside of it"
            )
        )
    if caller is not None and caller.owner == "library" and cures[0] is not move_input:
        package = _package_of_file(caller.path, failed_group.first.versions)
        version = failed_group.first.versions.get(package or "")
        cures.append(
            translated(
                "The line is in {package}, not in your code: try another version of it, or turn off the feature "
                "that uses it"
            ).format(package=f"{package} {version}" if version else package or translated("a library"))
        )
    return tuple(cures)


def _package_of_file(path: str, packages: Mapping[str, str]) -> str | None:
    """The package of a library's file: by a folder named like a package of the stack, else by site-packages."""
    path = path.replace("\\", "/")
    _, installed, inside = path.rpartition("-packages/")
    if installed:
        return inside.partition("/")[0].removesuffix(".py")
    return next((folder for folder in reversed(path.split("/")[:-1]) if folder in packages), None)
