"""Explain exceptions by the object they are about.

For example attributes of one kind of tensor, keys that a checkpoint lacks, files that one rank creates for the
others, lists of unequal lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gonogo.diagnose.kinds_of_messages import Explanation, first_explanation
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import RaisedException

_ATTRIBUTE_EXPLANATIONS: tuple[tuple[re.Pattern[str], Text, Text, Text], ...] = (
    (
        lazy_compile(r"^(?:to_local|full_tensor|redistribute|placements|device_mesh|_local_tensor|_spec)$"),
        translated("a DTensor"),
        translated(
            "it was not sharded, or whatever created it (an optimizer's state, a checkpoint, a wrapper) left "
            "it as a plain tensor"
        ),
        translated(
            "shard it like the parameters (fully_shard, distribute_tensor), or test isinstance(x, DTensor) "
            "before the call; for an optimizer state, use a release whose optimizer keeps DTensors"
        ),
    ),
    (
        lazy_compile(r"^(?:quant_state|absmax|SCB|CB|has_fp16_weights)$"),
        translated("a weight that bitsandbytes quantized"),
        translated(
            "it was never moved to the GPU (which quantizes it), was re-created by a wrapper, or is not quantized"
        ),
        translated(
            "move the layer to the GPU before it is used, and use a wrapper that preserves Params4bit and Int8Params"
        ),
    ),
    (
        lazy_compile(r"^(?:main_grad|main_param|grad_added_to_main_grad)$"),
        translated("a parameter in Megatron's gradient buffer"),
        translated(
            "the model is not wrapped by Megatron's DistributedDataParallel, or this parameter is frozen or was added "
            "after it"
        ),
        translated("wrap the model after all parameters exist, or turn gradient_accumulation_fusion off"),
    ),
)
"""Attributes that only one kind of tensor has: the kind, why this tensor is of another, what to do."""
_TENSOR_TYPES = ("Tensor", "Parameter", "FakeTensor", "DTensor")
_OPTIMIZER_KEY_PATTERN = lazy_compile(r"^(?:optimizer|optim)\b|\.(?:exp_avg(?:_sq)?|step|momentum_buffer)$")
_RANK_KEY_PATTERN = lazy_compile(r"(?:^|[._])(?:dp_?)?rank_?(\d{1,5})(?:$|[._])")
_EXPERT_KEY_PATTERN = lazy_compile(r"(?:^|\.)(?:local_)?experts\.(\d{1,5})\.")
# A file named by a hash of its inputs, or an index array. Not every name with "cache" or "index": a model's
# *.index.json and the files in ~/.cache are downloads, which no rank builds.
_CACHE_FILE_PATTERN = lazy_compile(
    r"(?:[0-9a-f]{16}[^/]*\.\w{1,12}|(?:^|[_.-])(?:idx|index|indices)\.(?:npy|npz|idx))$"
)
_MEMORY_MAP_PATTERN = lazy_compile(r"(?i)\bmemory map\b[^\n/]{0,40}(/\S{1,400})?[^\n]{0,20}\bnot found\b")
_LENGTH_PATTERN = lazy_compile(r"len\((\w{1,60})\)\s*[:=]*\s*(\d{1,9})")
_INHOMOGENEOUS_PATTERN = lazy_compile(r"inhomogeneous shape|setting an array element with a sequence")


def explain_by_object(exception: RaisedException) -> Explanation:
    """The reason and what to change; (None, None) if the exception is of no such kind."""
    return first_explanation(_RULES, exception)


def _explain_attribute(exception: RaisedException) -> Explanation:
    message = exception.message
    if message.form != "no_attribute" or message.subject.rpartition(".")[2] not in _TENSOR_TYPES:
        return None, None
    for names, kind, why, change in _ATTRIBUTE_EXPLANATIONS:
        if names.search(message.names[0]):
            return (
                translated("{name} exists only on {kind}, but this is a plain {subject}: {why}").format(
                    name=message.names[0], kind=kind, subject=message.subject.rpartition(".")[2], why=why
                ),
                change,
            )
    return None, None


def _explain_checkpoint_key(exception: RaisedException) -> Explanation:
    """A distributed checkpoint that lacks an entry; the kind of entry shows why."""
    if exception.message.form != "checkpoint_key":
        return None, None
    key = exception.message.names[0]
    because = translated("the checkpoint has no entry '{key}', which this run's state needs").format(key=key)
    if rank := _RANK_KEY_PATTERN.search(key):
        number = int(rank.group(1))
        return (
            translated(
                "{because}: it is the state of rank {number}, so the checkpoint was saved by fewer ranks "
                "({number} at most) than are loading it now"
            ).format(because=because, number=number),
            translated(
                "resume with the data-parallel size of the run that saved it, or exclude this state (a data "
                "loader's) from loading"
            ),
        )
    if expert := _EXPERT_KEY_PATTERN.search(key):
        return (
            translated(
                "{because}: the key belongs to one expert ({number}); the checkpoint may hold experts in another "
                "layout (all of a layer grouped in one tensor), or only those of one expert-parallel rank"
            ).format(because=because, number=expert.group(1)),
            translated(
                "list the checkpoint's keys "
                "(torch.distributed.checkpoint.FileSystemReader(PATH).read_metadata()) and compare how experts "
                "are named; load with the expert-parallel size it was saved with, or with a release whose "
                "conversion supports this layout"
            ),
        )
    if _OPTIMIZER_KEY_PATTERN.search(key):
        return (
            translated(
                "{because}: it is an optimizer state, which was not saved or was saved under another name "
                "(another optimizer, flattened names, parameters that were frozen)"
            ).format(because=because),
            translated(
                "load it with the optimizer and the options it was saved with, or resume from the weights alone"
            ),
        )
    return (
        translated("{because}: it was saved by another model, another wrapper or another release").format(
            because=because
        ),
        translated(
            "list the checkpoint's keys (torch.distributed.checkpoint.FileSystemReader(PATH).read_metadata()) and "
            "compare; load non-strictly (allow_partial_load, strict=False) only if this entry may stay as it is"
        ),
    )


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


def _explain_lengths(exception: RaisedException) -> Explanation:
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
    if _INHOMOGENEOUS_PATTERN.search(text):
        return (
            translated(
                "lists of different lengths are combined into one array: ranks, samples or micro-batches do not "
                "all contribute the same number"
            ),
            translated(
                "flatten before the mean (np.concatenate), or make each of them contribute the same number: with "
                "dynamic batches each rank has its own number of micro-batches"
            ),
        )
    return None, None


_IN_PLACE_OP_PATTERN = lazy_compile(
    r"aten\.(\w{1,60})(?:\.\w{1,40})?: in-place operations that require placement changes are not supported"
)
_OPTIMIZER_FILE_PATTERN = lazy_compile(r"/optim(?:izers?)?/_?(\w{1,40})\.py$")


def _explain_placement(exception: RaisedException) -> Explanation:
    """An in-place operation on a DTensor with a tensor of another placement."""
    found = _IN_PLACE_OP_PATTERN.search(exception.message.text)
    if found is None:
        return None, None
    paths = [frame.path.replace("\\", "/") for frame in reversed(exception.frames)]
    optimizer = next((match.group(1) for path in paths if (match := _OPTIMIZER_FILE_PATTERN.search(path))), "")
    if not optimizer:
        return (
            translated(
                "{operator} modifies a DTensor in place with one that is laid out differently across the ranks"
            ).format(operator=found.group(1)),
            translated("redistribute the other tensor to the first one's placements beforehand, or do it out of place"),
        )
    return (
        translated(
            "the optimizer ({optimizer}) produces an update that is laid out differently across the ranks than "
            "the sharded parameter (a DTensor, as FSDP2 creates), as with a parameter of one row or column"
        ).format(optimizer=optimizer),
        translated(
            "give such parameters (heads, norms, embeddings, weights of one row) to AdamW, use an optimizer made "
            "for sharded parameters, or leave these modules unsharded"
        ),
    )


_RULES: tuple[Callable[[RaisedException], Explanation], ...] = (
    _explain_attribute,
    _explain_checkpoint_key,
    _explain_generated_file,
    _explain_lengths,
    _explain_placement,
)
