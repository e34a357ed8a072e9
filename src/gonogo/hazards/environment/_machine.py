"""Compares a machine with the run's needs: its GPUs, and the operators that DeepSpeed compiles on it."""

import msgspec

from gonogo.evidence.environment.compatibility import ComputeCapability, gpu_compute_capability
from gonogo.evidence.environment.environment import Environment, Gpu
from gonogo.evidence.field import Field
from gonogo.evidence.run import Run
from gonogo.finding import Span, translated

_BUILT_LABEL = translated("DeepSpeed compiles {name} for it")
NOT_PREBUILT = translated("ds_report shows {names} as not installed")
"""How to confirm that an operator is compiled at the start."""
_FLASH_ATTENTION_NAMES = ("fa2", "flash_attention_2", "flash_attn", "flash_attention_3", "fa3")


class DeepSpeedOp(msgspec.Struct, frozen=True):
    """An operator that DeepSpeed builds when the run starts, and the config setting that needs it."""

    name: str
    span: Span | None


def compute_capability_of(gpu: Gpu) -> ComputeCapability | None:
    """A GPU's compute capability, as reported or looked up by its name."""
    return gpu.capability or gpu_compute_capability(gpu.name)


def weakest_gpu(environment: Environment) -> tuple[Gpu, ComputeCapability] | None:
    """The GPU of the lowest compute capability; None if none is known."""
    known = [(gpu, capability) for gpu in environment.gpus if (capability := compute_capability_of(gpu)) is not None]
    return min(known, key=lambda pair: pair[1], default=None)


def compiled_deepspeed_ops(run: Run) -> tuple[DeepSpeedOp, ...]:
    """The operators that DeepSpeed compiles for the run's config, unless they were built at installation."""
    config = run.config
    if config is None:
        return ()
    found = []
    offload = config.offload_target("optimizer")
    own = config.get("optimizer", "type")
    torch_adam = config.get("optimizer", "params", "torch_adam").truth
    if offload.get() in ("cpu", "nvme"):
        if not torch_adam:
            found.append(DeepSpeedOp("cpu_adam", _op_span(offload, "cpu_adam")))
    elif (own.string or "").lower() in ("adam", "adamw") and not torch_adam:
        found.append(DeepSpeedOp("fused_adam", _op_span(own, "fused_adam")))
    for what in ("optimizer", "param"):
        if config.offload_target(what).get() == "nvme":
            found.append(DeepSpeedOp("async_io", _op_span(config.offload_target(what), "async_io")))
            break
    return tuple(found)


def first_compiled_op(run: Run, *names: str) -> DeepSpeedOp | None:
    """The first DeepSpeed operator with one of the names that is compiled for the run."""
    return next((one for one in compiled_deepspeed_ops(run) if one.name in names), None)


def _op_span(field: Field, name: str) -> Span | None:
    return field.span(_BUILT_LABEL.format(name=name))


def cpu_adam_needs_cuda(environment: Environment) -> bool | None:
    """Whether DeepSpeed compiles CPUAdam against CUDA (toolkit, version check, curand); None if unknown.

    Up to 0.18.3 its builder is a CUDA builder; 0.19.8 compiles it for the CPU alone. Releases in between were not
    examined.
    """
    if environment.within("deepspeed", "<=0.18.3"):
        return True
    return False if environment.within("deepspeed", ">=0.19.8") else None


def environment_variable(environment: Environment, run: Run, name: str) -> Field:
    """An environment variable as the run gets it: as the launch sets it, else as the machine has it."""
    if run.launch is not None:
        field = run.launch.variable(name)
        if not field.absent:
            return field
    return environment.variable(name)


def flash_attention_request(run: Run) -> Field | None:
    """The argument, or keyword of ``from_pretrained``, that asks for flash-attn; None if there is none."""
    for name in ("attn_implementation", "attn_impl", "flash_attn"):
        field = run.arguments.get(name)
        if field.known and str(field.value).lower() in _FLASH_ATTENTION_NAMES:
            return field
    for name in ("use_flash_attn", "flash_attention", "use_flash_attention_2"):
        field = run.arguments.get(name)
        if field.truth:
            return field
    for script in run.scripts:
        if b"flash_att" not in script.source.data:
            continue
        for call in script.calls("*.from_pretrained", "*.from_config"):
            requested = call.keyword("attn_implementation")
            if requested.known and str(requested.value).lower() in _FLASH_ATTENTION_NAMES:
                return requested
            if call.keyword("use_flash_attention_2").truth:
                return call.keyword("use_flash_attention_2")
    return None
