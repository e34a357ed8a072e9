"""Explain exceptions by the state that the failing code expects and does not find.

For example a process group, a running event loop, an entry of a checkpoint, a parameter that has elements, a tensor
of the next pipeline stage with the same shape.
"""

from __future__ import annotations

from collections.abc import Callable

from gonogo.diagnose.kinds_of_messages import Explanation, first_explanation
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import CodePlace, RaisedException

_NO_GROUP_PATTERN = lazy_compile(r"Default process group has not been initialized")
_EMPTY_INDEX_PATTERN = lazy_compile(r"index -?\d{1,12} is out of bounds for dimension \d with size 0")
_PARAMETER_PATTERN = lazy_compile(r"(?<![\w.])([A-Za-z_][\w.]*(?:weight|bias|embed\w*|param\w*))\[")
_NO_LOOP_PATTERN = lazy_compile(r"^no running event loop")
_GRADIENT_SHAPE_PATTERN = lazy_compile(
    r"Mismatch in shape: grad_output\[\d{1,3}\] has a shape of torch\.Size\(\[([\d, ]{1,80})\]\) and output\[\d{1,3}\] "
    r"has a shape of torch\.Size\(\[([\d, ]{1,80})\]\)"
)
_STATE_LOOKUP_PATTERN = lazy_compile(r"(?i)(?<![\w.])((?:\w+\.)*\w*(?:state_dict|checkpoint|ckpt)\w*)\[[\"'f]")
_LOADING_PATTERN = lazy_compile(r"(?i)load|resume|restore|convert")
_NOT_IN_STATE_PATTERN = lazy_compile(r"^[\"']?([\w.]{3,300}) from model not in state dict")
_OTHER_DTYPE_PATTERN = lazy_compile(
    r"(?i)mismatch(?:ed)? dtypes?: src:? (?:torch\.)?(\w{3,20}), ?dst:? (?:torch\.)?(\w{3,20})"
)
_WRONG_TYPE_PATTERN = lazy_compile(
    r"^[`'\"]?([A-Za-z_][\w.]{0,80})[`'\"]? (?:must|should|has to) be (?:of type |an? )?"
    r"(tuple|list|dict|str|string|int|integer|bool|float|torch\.Tensor|tensor)\b"
    r"(?:[^\n]{0,40}?(?:got|not|but is|found) (?:an? )?<?(?:class |type )?'?([\w.]{2,40}))?"
)
_ILLEGAL_ACCESS_PATTERN = lazy_compile(r"an illegal memory access was encountered")
_PERMISSION_PATTERN = lazy_compile(r"\bpidfd_getfd\b[^\n]{0,40}(?:not permitted|denied)")


def explain_by_state(exception: RaisedException) -> Explanation:
    """The reason and what to change; (None, None) if the exception is of no such kind."""
    return first_explanation(_RULES, exception)


def _calling_frame(exception: RaisedException) -> CodePlace | None:
    """The innermost frame outside torch and Python."""
    outside = (frame for frame in reversed(exception.frames) if frame.package != "torch" and frame.owner != "python")
    return next(outside, None)


def _release(place: CodePlace | None) -> str:
    return f"{place.package} {place.release}".strip() if place is not None else ""


def _explain_no_group(exception: RaisedException) -> Explanation:
    """A collective in a process that belongs to no group."""
    if _NO_GROUP_PATTERN.search(exception.message.text[:400]) is None:
        return None, None
    caller = _calling_frame(exception)
    because = translated(
        "{function} calls a collective in a process without a process group: it was started as a single process "
        "(python, not torchrun or accelerate launch), or the call comes before init_process_group"
    ).format(function=caller.function if caller is not None and caller.function else translated("the program"))
    if caller is not None and caller.package:
        return because, translated(
            "start it with torchrun (--nproc_per_node 1 is enough); if one process is meant to do, use another release "
            "of {package}, which asks dist.is_initialized() first"
        ).format(package=caller.package)
    return because, translated(
        "start it with torchrun (--nproc_per_node 1 is enough), or skip the call where dist.is_initialized() is False"
    )


def _explain_no_loop(exception: RaisedException) -> Explanation:
    """``asyncio.get_running_loop()`` in a function that no event loop runs."""
    if _NO_LOOP_PATTERN.search(exception.message.text[:200]) is None:
        return None, None
    at = _calling_frame(exception)
    package = at.package if at is not None else ""
    return (
        translated(
            "{function} needs the event loop of the thread that runs it, but its caller is a plain function (not "
            "async) in a thread or worker without one"
        ).format(function=at.function if at is not None and at.function else translated("the function")),
        translated(
            "use the asynchronous mode only with the backend or worker of {package} that runs it in an event loop (an "
            "async actor), or a later release of {package}; in your own code: call it from a coroutine (asyncio.run)"
        ).format(package=package or translated("the framework")),
    )


def _explain_empty_parameter(exception: RaisedException) -> Explanation:
    """A row of a parameter that has no elements."""
    if _EMPTY_INDEX_PATTERN.search(exception.message.text[:300]) is None or not exception.frames:
        return None, None
    at = exception.frames[-1]
    found = _PARAMETER_PATTERN.search(at.code[:2000])
    if found is None:
        return None, None
    return (
        translated(
            "{what} is empty (size 0) in {function}: ZeRO-3 partitions each parameter as it is made or loaded, and "
            "outside the modules' forward the rank holds none of its rows"
        ).format(what=found.group(1), function=at.function),
        translated(
            "use a release of {package} that gathers it there (deepspeed.zero.GatheredParameters), do this step before "
            "ZeRO-3 partitions the model, or use ZeRO-2"
        ).format(package=at.package or translated("the package")),
    )


def _explain_stage_shapes(exception: RaisedException) -> Explanation:
    """A gradient that the next pipeline stage sent, with another shape than what this stage had sent it."""
    found = _GRADIENT_SHAPE_PATTERN.search(exception.message.text[:1000])
    if found is None:
        return None, None
    gradient, output = found.groups()
    return (
        translated(
            "the gradient handed to backward (in pipeline parallelism the next stage sends it) has the shape "
            "[{gradient}], the output of this stage [{output}]: the micro-batches differ in length or size, and the "
            "stages use the shapes of another one (kept from the first batch, or exchanged in another order)"
        ).format(gradient=gradient, output=output),
        translated(
            "give all micro-batches one length and size (pad to a fixed length, drop the last batch), or turn on what "
            "sends the shapes each time and turn off what keeps or batches them (variable_seq_lengths, no metadata "
            "cache, batch_p2p_comm=False; with two stages no virtual ones)"
        ),
    )


def _explain_absent_state(exception: RaisedException) -> Explanation:
    """An entry that the loaded checkpoint does not have."""
    text = exception.message.text.strip().strip("\"'")
    if found := _NOT_IN_STATE_PATTERN.search(text):
        return (
            translated(
                "the checkpoint has no {key}, which the model needs: it was written for another version or "
                "configuration of the model"
            ).format(key=found.group(1)),
            translated(
                "look at which checkpoint is loaded: a run may resume that of an earlier one in its output folder; "
                "delete that folder or choose another, or load one that this code wrote"
            ),
        )
    at = exception.frames[-1] if exception.frames else None
    if exception.message.form != "missing_key" or not exception.message.names or at is None:
        return None, None
    key, holder = exception.message.names[0], _STATE_LOOKUP_PATTERN.search(at.code[:2000])
    if holder is None or not _LOADING_PATTERN.search(f"{at.function} {at.path}"):
        return None, None
    return (
        translated(
            "the checkpoint that {function} loads has no entry '{key}' ({holder}): it was saved without it (weights "
            "alone, a setting of the run that saved it), or by another release"
        ).format(function=at.function, key=key, holder=holder.group(1)),
        translated(
            "load without it (the setting that asks for it: load_{key}, no-load-{key}, finetune), or load a checkpoint "
            "that was saved with it"
        ).format(key=_setting_word(key)),
    )


def _setting_word(key: str) -> str:
    return {"optimizer": "optim", "optimizers": "optim", "rng_state": "rng"}.get(key, key)


def _explain_other_dtype(exception: RaisedException) -> Explanation:
    """A copy between tensors of two dtypes, which the receiver does not convert."""
    found = _OTHER_DTYPE_PATTERN.search(exception.message.text[:1000])
    if found is None or found.group(1) == found.group(2):
        return None, None
    sent, there = found.groups()
    package = next((frame.package for frame in reversed(exception.frames) if frame.package), "")
    return (
        translated(
            "what is sent is {sent}, and where it arrives is {there}: one side keeps these weights in another "
            "precision (PEFT makes adapters float32, an optimizer has float32 copies; an engine has the dtype that it "
            "was started with)"
        ).format(sent=sent, there=there),
        translated(
            "cast to {there} before they are sent (a release of {package} that does so), or give both sides one dtype "
            "(the engine's dtype; autocast_adapter_dtype=False of get_peft_model)"
        ).format(there=there, package=package or translated("the trainer")),
    )


def _explain_wrong_type(exception: RaisedException) -> Explanation:
    """An argument whose type the called package refuses, given by another package."""
    found = _WRONG_TYPE_PATTERN.search(exception.message.text[:400].strip())
    if found is None or len(exception.frames) < 2:
        return None, None
    name, wanted, given = found.groups()
    inner = exception.frames[-1].package
    caller = next((frame for frame in reversed(exception.frames) if frame.package != inner), None)
    if not inner or caller is None or caller.owner == "python":
        return None, None
    because = translated(
        "{caller} gives {callee} something else than a {wanted} for {name}{given}: in {function}, `{code}`"
    ).format(
        caller=_release(caller) or translated("your code"),
        callee=_release(exception.frames[-1]),
        wanted=wanted,
        name=name,
        given=Text(f" ({given})", f"（{given}）") if given else "",
        function=caller.function,
        code=" ".join(caller.code[:160].split()),
    )
    if not caller.package:
        return because, translated("convert it there: {wanted}(…)").format(wanted=wanted)
    return because, translated(
        "it is a defect of {caller}, or it was made for another release of {callee}: convert it there ({wanted}(…)), "
        "or use a later release of {caller}"
    ).format(caller=caller.package, callee=inner, wanted=wanted)


def _explain_generated_forward(exception: RaisedException) -> Explanation:
    """An attribute that a generated function (a patched forward) expects, and that another patch would have set."""
    message = exception.message
    if message.form != "no_attribute" or not message.names:
        return None, None
    frames = [frame for frame in exception.frames if frame.function != "__getattr__"]
    if not frames or frames[-1].path not in ("<string>", "<stdin>"):
        return None, None
    function = frames[-1].function
    package = next(
        (frame.package for frame in exception.frames if frame.package and function.startswith(frame.package)), ""
    )
    return (
        translated(
            "{function} was generated and put in place of a method{by}; it reads {name} of {subject}, which nothing "
            "has set there: one part of the patch was applied, and the part that sets it was skipped"
        ).format(
            function=function,
            by=Text(f" by {package}", f"（由 {package} 生成）") if package else "",
            name=message.names[0],
            subject=message.subject,
        ),
        translated(
            "turn off the setting of {package} that patches this method (its own kernels or fused layers), or use "
            "another release of {package}"
        ).format(package=package or translated("the package that patches it")),
    )


def _explain_refused_handle(exception: RaisedException) -> Explanation:
    """A file descriptor that one process may not take from another."""
    if _PERMISSION_PATTERN.search(exception.message.text[:1000]) is None:
        return None, None
    return (
        translated(
            "one process may not take a file descriptor from another (pidfd_getfd), as CUDA IPC needs: the kernel's "
            "yama.ptrace_scope, or the container, forbids it"
        ),
        translated(
            "set kernel.yama.ptrace_scope to 0 on the host, or give the container --cap-add=SYS_PTRACE; or transfer "
            "weights without CUDA IPC (take expandable_segments:True out of PYTORCH_CUDA_ALLOC_CONF)"
        ),
    )


def _explain_illegal_access(exception: RaisedException) -> Explanation:
    """A GPU kernel that left its memory."""
    if _ILLEGAL_ACCESS_PATTERN.search(exception.message.text[:400]) is None:
        return None, None
    at = exception.frames[-1] if exception.frames else None
    code = " ".join(at.code[:160].split()) if at is not None else ""
    return (
        translated(
            "a GPU kernel read or wrote outside of its memory{where}: CUDA reports it at a later call than the one "
            "that did it"
        ).format(where=Text(f" (noticed at `{code}`)", f"（在 `{code}` 处发现）") if code else ""),
        translated(
            "run once with CUDA_LAUNCH_BLOCKING=1 to see the kernel; usual reasons: a tensor of more than 2^31 "
            "elements (a smaller batch or length), indices or lengths (cu_seqlens) that don't fit the data, memory "
            "that was freed meanwhile (an engine put to sleep), a kernel built for another GPU or release"
        ),
    )


_RULES: tuple[Callable[[RaisedException], Explanation], ...] = (
    _explain_generated_forward,
    _explain_no_group,
    _explain_no_loop,
    _explain_empty_parameter,
    _explain_stage_shapes,
    _explain_absent_state,
    _explain_other_dtype,
    _explain_wrong_type,
    _explain_refused_handle,
    _explain_illegal_access,
)
