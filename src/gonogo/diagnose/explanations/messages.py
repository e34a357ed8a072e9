"""Explain exceptions by numbers, names and lists in their message, which have to be compared.

For example a check that refuses an allowed value, an empty range, a gradient with another dtype than the weights, a
file that one rank creates for the others.
"""

from __future__ import annotations

from collections.abc import Callable

from gonogo.diagnose.explanations.explanation import (
    Explanation,
    code_line,
    first_explanation,
    nearest_package,
    raising_frame,
)
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import translated
from gonogo.finding.failure import RaisedException

_ALLOWED_VALUES_PATTERN = lazy_compile(
    r"(?i)\b([A-Za-z_][\w.]{0,60})[\"'`]?,? (?:must|should|has to|needs to) be (?:either|one of|in)\b:? ?"
    r"([^.\n]{3,400}?)[,;.]? ?(?:but )?(?:got|received|found|given|is)\b:? ?[\"'`]([^\"'`\n]{1,80})[\"'`]"
)
_QUOTED_VALUE_PATTERN = lazy_compile(r"[\"'`]([^\"'`\n]{1,80})[\"'`]")
_RANGE_PATTERN = lazy_compile(
    r"(?i)(?:range|be|between|lie)s? (?:in|from|within)? ?[\[(] ?([A-Za-z_]\w{0,30}) ?[=:] ?(\d{1,9}) ?, ?"
    r"([A-Za-z_]\w{0,30}) ?[=:] ?(\d{1,9}) ?[\])]"
)
_DTYPE_MISMATCH_PATTERN = lazy_compile(
    r"(?:same dtype,? but got:?|expected scalar type) ?(?:c10::)?(\w+?)(?: ?!= ?| and | but found )(?:c10::)?(\w+)"
)
_SAME_DTYPE_PATTERN = lazy_compile(r"\w+\.dtype ?(?:==|!=) ?\w+\.dtype|must have the same dtype")
_HALF_DTYPES = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16"}
_FLOAT_DTYPES = {**_HALF_DTYPES, "float": "float32", "float32": "float32"}
_FORMAT_BY_COLUMN = {
    "instruction": "alpaca (instruction, input, output)",
    "output": "alpaca (instruction, input, output)",
    "conversations": "sharegpt (conversations of from and value)",
    "messages": "chat (messages of role and content)",
    "prompt": "prompt and completion",
    "completion": "prompt and completion",
    "chosen": "preference (prompt, chosen, rejected)",
    "rejected": "preference (prompt, chosen, rejected)",
    "text": "plain text (text)",
    "images": "vision (messages and images)",
}
"""Columns of training data, and the dataset format that they belong to."""
_WRAPPED_ERROR_PATTERN = lazy_compile(r"(?s)\n(\w{2,60}(?:Error|Exception))\(([\"'])(.{10,4000}?)\2\)")
_SIZE_MISMATCH_PATTERN = lazy_compile(
    r"size mismatch for ([\w.]{1,200}): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from checkpoint, "
    r"the shape in current model is torch\.Size\(\[([\d, ]*)\]\)"
)
_CACHE_FILE_PATTERN = lazy_compile(
    r"(?:[0-9a-f]{16}[^/]*\.\w{1,12}|(?:^|[_.-])(?:idx|index|indices)\.(?:npy|npz|idx))$"
)
_MEMORY_MAP_PATTERN = lazy_compile(r"(?i)\bmemory map\b[^\n/]{0,40}(/\S{1,400})?[^\n]{0,20}\bnot found\b")
_LENGTH_PATTERN = lazy_compile(r"len\((\w{1,60})\)\s*[:=]*\s*(\d{1,9})")
_LITERAL_PATTERN = lazy_compile(r"[\"']([\w./-]{1,80})[\"']")
_MESH_DIMENSIONS_PATTERN = lazy_compile(
    r"Invalid mesh_dim_names? \(?([^()\n]{1,120}?)\)? specified\. Valid mesh_dim_names are \[([^\]\n]{0,200})\]"
)
_BUNDLE_PATTERN = lazy_compile(
    r"placement group bundle index (\d{1,6}) is invalid\. Valid placement group indexes: 0-(\d{1,6})"
)


def explain_by_message(exception: RaisedException) -> Explanation:
    """What a message says about the cause and what to change; (None, None) if it is of no known kind."""
    return first_explanation(_RULES, exception)


def _explain_generated_file(exception: RaisedException) -> Explanation:
    """A missing file that the program generates itself: another rank created it elsewhere."""
    message = exception.message
    path = (
        message.subject
        if message.form == "no_file" and _CACHE_FILE_PATTERN.search(message.subject.rpartition("/")[2].lower())
        else ""
    )
    if not path and message.form != "no_file" and (found := _MEMORY_MAP_PATTERN.search(message.text)):
        path = (found.group(1) or "").rstrip(".,'\"") or next(iter(message.paths), "")
    if not path:
        return None, None
    folder = path.rpartition("/")[0] or path
    return (
        translated(
            "{path} does not exist: it is an index or a cache that one rank (rank 0) builds and all ranks read, "
            "so it was built on another node, in a folder that the nodes do not share, or is not finished"
        ).format(path=path),
        translated(
            "put {folder} on storage that every node sees under the same path (Megatron: --data-cache-path), or build "
            "it on each node before the run"
        ).format(folder=folder),
    )


def _explain_different_lengths(exception: RaisedException) -> Explanation:
    """Lists whose lengths differ according to the message, or that can't form an array."""
    text = exception.message.text
    lengths = list(dict.fromkeys(_LENGTH_PATTERN.findall(text)))
    if len(lengths) == 2 and lengths[0][1] != lengths[1][1]:
        (one, first), (other, second) = lengths
        return (
            translated("{one} has {first} entries and {other} has {second}: the two must have the same number").format(
                one=one, first=first, other=other, second=second
            ),
            None,
        )
    return None, None


def _explain_rejected_value(exception: RaisedException) -> Explanation:
    """A value compared with the allowed values in the message: not among them, or refused although it is."""
    found = _ALLOWED_VALUES_PATTERN.search(exception.message.text[:2000])
    if found is None:
        return None, None
    name, listed, value = found.groups()
    values = _QUOTED_VALUE_PATTERN.findall(listed)
    if len(values) < 2:
        return None, None
    if value not in values:
        return (
            translated("{name} is '{value}', which is not one of {values}").format(
                name=name, value=value, values=", ".join(values)
            ),
            translated("set {name} to one of {values}").format(name=name, values=", ".join(values)),
        )
    return (
        translated(
            "'{value}' is one of the values that the message allows for {name}: the check that rejects it tests "
            "more than the value (the main process, rank 0, or an installed package) and has no branch for this "
            "process"
        ).format(name=name, value=value),
        translated(
            "read the condition above the raise: it is a bug in that release if other ranks fail but the main "
            "process does not; use a later or earlier one, or run with one process to check"
        ),
    )


def _explain_empty_range(exception: RaisedException) -> Explanation:
    """An empty range, whose lower bound is above its upper bound."""
    text = exception.message.text[:1000]
    found = _RANGE_PATTERN.search(text)
    if found is None or int(found.group(2)) <= int(found.group(4)):
        return None, None
    low, least, high, most = found.groups()
    because = translated(
        "no value lies between {low}={least} and {high}={most}: {high} has to be at least {low}, but is less"
    ).format(low=low, least=least, high=high, most=most)
    if "micro-batch" in text.lower() or "microbatch" in text.lower():
        return (
            because,
            translated(
                "use at least {least} micro-batches: a larger global batch, a smaller micro batch, or fewer "
                "data-parallel ranks (global batch / micro batch / data parallel); or fewer pipeline stages"
            ).format(least=least),
        )
    return because, translated("raise {high} to {least}, or lower {low}").format(high=high, least=least, low=low)


_PRODUCT_PATTERN = lazy_compile(r"([A-Za-z_]\w*)(?:\.\w+(?:\([^()]*\))?)* ?@ ?\(?([A-Za-z_]\w*)")
_GRADIENT_NAME_PATTERN = lazy_compile(r"(?i)^(?:grad|d(?:y|out|o|z)\b)|grad")


def _gradient_dtype(code: str, left: str, right: str) -> str:
    """The dtype of the gradient in a product of two dtypes, by the operands' names; empty if they don't tell."""
    found = _PRODUCT_PATTERN.search(code.partition("=")[2] or code)
    if found is None:
        return ""
    of_gradient = [_GRADIENT_NAME_PATTERN.search(name) is not None for name in found.groups()]
    return {(True, False): left, (False, True): right}.get((of_gradient[0], of_gradient[1]), "")


def _explain_dtype_mismatch(exception: RaisedException) -> Explanation:
    """Two dtypes in one product: a float32 gradient in a backward, or fp16 mixed with bf16."""
    found = _DTYPE_MISMATCH_PATTERN.search(" ".join(exception.message.text.split()))
    if found is None:
        return None, None
    one, other = (_FLOAT_DTYPES.get(name.lower(), "") for name in found.groups())
    if exception.frames and exception.frames[-1].function == "backward" and {one, other} & {"float32"} and one != other:
        half = other if one == "float32" else one
        if _gradient_dtype(code_line(raising_frame(exception)), one, other) == half:
            return (
                translated(
                    "the gradient arrives in {half} (under autocast the forward's output is {half}), and this "
                    "backward multiplies it by a tensor that the forward kept in float32, without a cast"
                ).format(half=half),
                translated(
                    "use a later release of {package} (it has to cast one of the two), or run without autocast: the "
                    "weights themselves in {half}, or everything in float32; or do without this kernel"
                ).format(half=half, package=nearest_package(exception) or translated("the code of this backward")),
            )
        return (
            translated(
                "the gradient arrives in float32 (the forward's output is float32: output_dtype of FSDP2's "
                "policy, or a loss outside autocast), and this backward multiplies it by {half} weights "
                "without a cast"
            ).format(half=half),
            translated(
                "leave output_dtype of the MixedPrecisionPolicy at its default (None), or cast the gradient to the "
                "weight's dtype in that backward (a later release may do this)"
            ),
        )
    if {one, other} == {"float16", "bfloat16"}:
        return (
            translated(
                "one operand is float16 and the other bfloat16: part of the run is set to fp16 and part to bf16 "
                "(code that dequantizes or gathers weights, such as ZeRO++'s zero_quantized_weights, produces "
                "float16)"
            ),
            translated(
                "use one of them throughout: fp16 or bf16 in the engine's config, the trainer's arguments and "
                "torch_dtype; under bf16 turn zero_quantized_weights off"
            ),
        )
    return None, None


_TWO_DEVICES_PATTERN = lazy_compile(r"found at least two devices, (\w+(?::\d+)?) and (\w+(?::\d+)?)")
_FORWARD_PATTERN = lazy_compile(r"forward|_call_impl|__call__")


def _explain_devices_outside_model(raised: RaisedException) -> Explanation:
    """Tensors of two devices in a framework's own line, while no model's forward runs."""
    found = _TWO_DEVICES_PATTERN.search(raised.message.text)
    at = raising_frame(raised)
    if found is None or at is None or at.package in ("", "torch") or len(raised.frames) < 2:
        return None, None
    if any(_FORWARD_PATTERN.search(f"{frame.function} {frame.code[:400]}") for frame in raised.frames):
        return None, None
    release = f"{at.package} {at.release}".strip()
    return (
        translated(
            "{function} of {release} combines a tensor on {one} with one on {other} outside any model's forward, so "
            "both are its own (what it computed itself, and what it was handed)"
        ).format(function=at.function, release=release, one=found.group(1), other=found.group(2)),
        translated(
            "use a later release of {package}, or a setting that doesn't run {function}; as a workaround, move one of "
            "the two tensors in that line to the other's device: a.to(b.device)"
        ).format(package=at.package, function=at.function),
    )


def _explain_unequal_dtypes(raised: RaisedException) -> Explanation:
    """A kernel's check that two tensors have the same dtype, which its caller violates."""
    code = code_line(raising_frame(raised))
    found = _SAME_DTYPE_PATTERN.search(code) or _SAME_DTYPE_PATTERN.search(raised.message.text[:400])
    dtypes = [dtype for dtype in raised.message.dtypes if dtype in _FLOAT_DTYPES.values()]
    if found is None or raised.type != "AssertionError" or len(dtypes) != 2:
        return None, None
    inner = nearest_package(raised)
    caller = next((frame for frame in reversed(raised.frames) if frame.package and frame.package != inner), None)
    who = f"{caller.package} {caller.release}".strip() if caller is not None else ""
    return (
        translated(
            "{who} passes tensors of two dtypes ({one} and {other}) to {callee}, which does not cast them"
        ).format(
            who=who or translated("the caller"),
            one=dtypes[0],
            other=dtypes[1],
            callee=inner or raised.frames[-1].function,
        ),
        translated(
            "use one dtype throughout: load the model in the precision that it is trained in (torch_dtype=bfloat16 "
            "with bf16, float16 with fp16); if it already is, use another release of {who}, which casts before this "
            "call"
        ).format(who=caller.package if caller is not None else translated("the caller")),
    )


def _explain_missing_column(exception: RaisedException) -> Explanation:
    """A KeyError with a column of training data, in a line that doesn't show which object lacks it."""
    message = exception.message
    if (
        message.form != "missing_key"
        or not message.names
        or message.names[0] not in _FORMAT_BY_COLUMN
        or code_line(raising_frame(exception))
    ):
        return None, None
    key = message.names[0]
    return (
        translated(
            "a sample has no entry '{key}', which is a column of the {form} format: the dataset has another "
            "format, or is wrongly declared as this one"
        ).format(key=key, form=_FORMAT_BY_COLUMN[key]),
        translated(
            "look at the first row's columns and at how the dataset is declared (LLaMA-Factory: formatting and "
            "columns in dataset_info.json; alpaca by default), and map or rename them"
        ),
    )


def _explain_quoted_size_mismatch(exception: RaisedException) -> Explanation:
    """A state dict size mismatch, quoted by a wrapper (Hydra's instantiate) with escaped newlines."""
    text = exception.message.text[:6000]
    if inner := _WRAPPED_ERROR_PATTERN.search(text):
        text = inner.group(3).replace("\\n", "\n").replace("\\t", " ")
    elif not exception.type.endswith(("InstantiationException", "RayTaskError")):
        return None, None
    found = _SIZE_MISMATCH_PATTERN.search(text)
    if found is None:
        return None, None
    name, there, here = found.groups()
    return (
        translated(
            "the checkpoint has {name} as [{there}] and the model as [{here}]: it was saved by another version or "
            "another configuration of the model"
        ).format(name=name, there=there, here=here),
        translated(
            "use the checkpoint that matches this code (or the code that matches the checkpoint), or the "
            "configuration it was saved with; leave these keys out only if they are not used"
        ),
    )


def _explain_missing_mesh_dimension(exception: RaisedException) -> Explanation:
    """A dimension that a device mesh does not have, since its size is 1."""
    found = _MESH_DIMENSIONS_PATTERN.search(exception.message.text[:1000].replace("\\", ""))
    if found is None:
        return None, None
    requested, there = (", ".join(_LITERAL_PATTERN.findall(names)) for names in found.groups())
    if not requested or not there:
        return None, None
    return (
        translated(
            "the device mesh has only the dimensions {there}, and {asked} is asked for: this parallelism has size 1 "
            "(the other sizes take all ranks), or the mesh was made without it"
        ).format(asked=requested, there=there),
        translated(
            "give {asked} a size above 1 (smaller sizes of {there}, or more ranks), or turn off what runs "
            "over {asked} (FSDP, if it is for sharding or replication)"
        ).format(asked=requested, there=there),
    )


def _explain_missing_ray_bundle(exception: RaisedException) -> Explanation:
    """More workers than a Ray placement group has bundles for."""
    found = _BUNDLE_PATTERN.search(exception.message.text[:1000])
    if found is None:
        return None, None
    index, last = (int(number) for number in found.groups())
    return (
        translated(
            "Ray's placement group has {count} bundles (0 to {last}), and bundle {index} is asked for: the workers or "
            "engines placed in it need more GPUs than were reserved"
        ).format(count=last + 1, last=last, index=index),
        translated(
            "make the number of engines × their tensor-parallel size at most {count} (colocated: nodes × GPUs per node "
            "of the trainer), or reserve more GPUs"
        ).format(count=last + 1),
    )


_RULES: tuple[Callable[[RaisedException], Explanation], ...] = (
    _explain_generated_file,
    _explain_different_lengths,
    _explain_rejected_value,
    _explain_empty_range,
    _explain_dtype_mismatch,
    _explain_unequal_dtypes,
    _explain_devices_outside_model,
    _explain_missing_column,
    _explain_quoted_size_mismatch,
    _explain_missing_mesh_dimension,
    _explain_missing_ray_bundle,
)
