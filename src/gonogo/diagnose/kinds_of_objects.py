"""What a message of a library means by its own nature: attributes of one kind of tensor, keys that a checkpoint lacks,
files that one rank makes for the others, lists of unequal lengths."""

from __future__ import annotations

import re
from collections.abc import Callable

from gonogo.evidence.patterns import compiled_when_used
from gonogo.finding import Text
from gonogo.finding.failure import RaisedException

Told = tuple[Text | None, Text | None]
"""Why, as a clause, and what to change."""

_KINDS: tuple[tuple[re.Pattern[str], Text, Text, Text], ...] = (
    (
        compiled_when_used(r"^(?:to_local|full_tensor|redistribute|placements|device_mesh|_local_tensor|_spec)$"),
        Text("a DTensor", "DTensor"),
        Text(
            "it was not sharded, or what made it (an optimizer's state, a checkpoint, a wrapper) left it plain",
            "它没有被切分，或产生它的一方（优化器状态、checkpoint、包装器）把它留成了普通张量",
        ),
        Text(
            "shard it like the parameters (fully_shard, distribute_tensor), or test isinstance(x, DTensor) before "
            "the call; for a state of an optimizer, take a release whose optimizer keeps DTensors",
            "像参数那样切分它（fully_shard、distribute_tensor），或在调用前判断 isinstance(x, DTensor)；若是优化器状态"
            "，请使用能保持 DTensor 的版本",
        ),
    ),
    (
        compiled_when_used(r"^(?:quant_state|absmax|SCB|CB|has_fp16_weights)$"),
        Text("a weight that bitsandbytes quantized", "bitsandbytes 量化的权重"),
        Text(
            "it was never moved to the GPU (which quantizes it), was made anew by a wrapper, or is not quantized",
            "它没有被移到 GPU（量化在那时进行），或被包装器重新创建，或没有被量化",
        ),
        Text(
            "move the layer to the GPU before it is used, and wrap it with what keeps Params4bit and Int8Params",
            "使用前把该层移到 GPU，并使用能保留 Params4bit、Int8Params 的包装",
        ),
    ),
    (
        compiled_when_used(r"^(?:main_grad|main_param|grad_added_to_main_grad)$"),
        Text("a parameter in Megatron's gradient buffer", "Megatron 梯度缓冲区中的参数"),
        Text(
            "the model is not wrapped by Megatron's DistributedDataParallel, or this parameter is frozen or was added "
            "after it",
            "模型没有被 Megatron 的 DistributedDataParallel 包装，或该参数被冻结、或是之后才加入的",
        ),
        Text(
            "wrap the model after all parameters exist, or turn gradient_accumulation_fusion off",
            "在所有参数建好之后再包装模型，或关闭 gradient_accumulation_fusion",
        ),
    ),
)
"""Attributes that only one kind of tensor has: the kind, why this one is of another, what to do."""
_TENSORS = ("Tensor", "Parameter", "FakeTensor", "DTensor")
_FLATTENED = compiled_when_used(r"^(?:optimizer|optim)\b|\.(?:exp_avg(?:_sq)?|step|momentum_buffer)$")
_RANK_IN_KEY = compiled_when_used(r"(?:^|[._])(?:dp_?)?rank_?(\d{1,5})(?:$|[._])")
_EXPERT_IN_KEY = compiled_when_used(r"(?:^|\.)(?:local_)?experts\.(\d{1,5})\.")
# A file that is looked up by a hash of what it was made from, or an array of indices. Not any name with "cache" or
# "index" in it: a model's *.index.json and what lies in ~/.cache are downloads, which no rank builds.
_GENERATED = compiled_when_used(r"(?:[0-9a-f]{16}[^/]*\.\w{1,12}|(?:^|[_.-])(?:idx|index|indices)\.(?:npy|npz|idx))$")
_NOT_MADE = compiled_when_used(r"(?i)\bmemory map\b[^\n/]{0,40}(/\S{1,400})?[^\n]{0,20}\bnot found\b")
_LENGTHS = compiled_when_used(r"len\((\w{1,60})\)\s*[:=]*\s*(\d{1,9})")
_INHOMOGENEOUS = compiled_when_used(r"inhomogeneous shape|setting an array element with a sequence")


def told_by_its_kind(raised: RaisedException) -> Told:
    """Why and what to change, where the message is of such a kind; else two times None."""
    for rule in _RULES:
        told = rule(raised)
        if told[0] is not None:
            return told
    return None, None


def _of_attribute(raised: RaisedException) -> Told:
    message = raised.message
    if message.form != "no_attribute" or message.subject.rpartition(".")[2] not in _TENSORS:
        return None, None
    for names, kind, why, change in _KINDS:
        if names.search(message.names[0]):
            return (
                Text(
                    "{name} is what only {kind} has, and this is a plain {subject}: {why}",
                    "只有{kind}才有 {name}，而这是普通的 {subject}：{why}",
                ).format(name=message.names[0], kind=kind, subject=message.subject.rpartition(".")[2], why=why),
                change,
            )
    return None, None


def _of_checkpoint_key(raised: RaisedException) -> Told:
    """A distributed checkpoint without an entry that the run asks for: what the entry is tells why."""
    if raised.message.form != "checkpoint_key":
        return None, None
    key = raised.message.names[0]
    because = Text(
        "the checkpoint has no entry '{key}', which this run's state asks for",
        "checkpoint 中没有本次运行所要的 “{key}”",
    ).format(key=key)
    if rank := _RANK_IN_KEY.search(key):
        number = int(rank.group(1))
        return (
            Text(
                "{because}: it is the state of rank {number}, so it was saved by fewer ranks ({number} at most) than "
                "load it now",
                "{because}：它是 rank {number} 的状态，即保存时的 rank 数（至多 {number}）少于现在加载的",
            ).format(because=because, number=number),
            Text(
                "resume with the data-parallel size of the run that saved it, or leave this state (a data loader's) "
                "out of what is loaded",
                "用保存时的数据并行规模恢复，或加载时不包含这部分（数据加载器的）状态",
            ),
        )
    if expert := _EXPERT_IN_KEY.search(key):
        return (
            Text(
                "{because}: the key is of one expert ({number}); experts may be saved there in another layout (all of "
                "a layer grouped in one tensor), or only those that one rank of the expert parallelism held",
                "{because}：这是单个专家（{number}）的键；其中专家可能以另一种布局保存（一层的专家合成一个张量），或只保存"
                "了专家并行中某个 rank 持有的专家",
            ).format(because=because, number=expert.group(1)),
            Text(
                "list the checkpoint's keys (torch.distributed.checkpoint.FileSystemReader(PATH).read_metadata()) and "
                "compare how experts are named; load with the expert-parallel size that saved it, or with a release "
                "whose conversion knows this layout",
                "列出 checkpoint 的键（torch.distributed.checkpoint.FileSystemReader(路径).read_metadata()），比较专家"
                "的命名；用保存时的专家并行规模加载，或使用转换代码认识该布局的版本",
            ),
        )
    if _FLATTENED.search(key):
        return (
            Text(
                "{because}: it is a state of the optimizer, which was saved without it or under other names (another "
                "optimizer, flattened names, parameters that were frozen)",
                "{because}：它是优化器的状态，保存时没有它或名字不同（另一种优化器、展平的名字、被冻结的参数）",
            ).format(because=because),
            Text(
                "load it with the optimizer and the options that saved it, or resume from the weights alone",
                "使用保存时的优化器与选项加载，或只从权重恢复",
            ),
        )
    return (
        Text(
            "{because}: it was saved by another model, another wrapper or another release",
            "{because}：它由另一个模型、另一种包装或另一版本保存",
        ).format(because=because),
        Text(
            "list the checkpoint's keys (torch.distributed.checkpoint.FileSystemReader(PATH).read_metadata()) and "
            "compare; load non-strictly (allow_partial_load, strict=False) only if this entry may stay as it is",
            "列出 checkpoint 的键（torch.distributed.checkpoint.FileSystemReader(路径).read_metadata()）并比较；仅当"
            "该项可保持原值时才用非严格加载（allow_partial_load、strict=False）",
        ),
    )


def _of_generated_file(raised: RaisedException) -> Told:
    """A file that the program makes itself, and that is not there: another rank made it elsewhere."""
    message = raised.message
    path = (
        message.subject
        if message.form == "no_file" and _GENERATED.search(message.subject.rpartition("/")[2].lower())
        else ""
    )
    if not path and message.form != "no_file" and (found := _NOT_MADE.search(message.text)):
        path = (found.group(1) or "").rstrip(".,'\"") or next(iter(message.paths), "")
    if not path:
        return None, None
    folder = path.rpartition("/")[0] or path
    return (
        Text(
            "{path} is not there: it is an index or a cache that one rank (rank 0) builds and all read, so it was "
            "built on another node, in a folder that the nodes do not share, or is not finished",
            "{path} 不存在：它是由一个 rank（rank 0）建立、供所有 rank 读取的索引或缓存，因此它建在了别的节点上（各节点"
            "不共享该目录），或尚未建完",
        ).format(path=path),
        Text(
            "put {folder} on storage that every node sees under the same path (Megatron: --data-cache-path), or build "
            "it on each node before the run",
            "把 {folder} 放到各节点路径相同的共享存储上（Megatron：--data-cache-path），或运行前在每个节点上各建一份",
        ).format(folder=folder),
    )


def _of_lengths(raised: RaisedException) -> Told:
    """Lists whose lengths the message tells, or that don't make an array."""
    text = raised.message.text
    lengths = list(dict.fromkeys(_LENGTHS.findall(text)))
    if len(lengths) == 2 and lengths[0][1] != lengths[1][1]:
        (one, first), (other, second) = lengths
        return (
            Text(
                "{one} has {first} entries and {other} has {second}: they have to be as many",
                "{one} 有 {first} 项，而 {other} 有 {second} 项：两者数量必须相同",
            ).format(one=one, first=first, other=other, second=second),
            None,
        )
    if _INHOMOGENEOUS.search(text):
        return (
            Text(
                "lists of different lengths are to become one array: what each rank, sample or micro-batch adds is not "
                "the same number",
                "长度不同的列表要合成一个数组：各 rank、样本或 micro-batch 添加的数量不同",
            ),
            Text(
                "flatten before the mean (np.concatenate), or make each of them add as many: with dynamic batches each "
                "rank has its own number of micro-batches",
                "求平均前先展平（np.concatenate），或让它们添加的数量相同：使用动态 batch 时各 rank 的 micro-batch 数"
                "不同",
            ),
        )
    return None, None


_IN_PLACE = compiled_when_used(
    r"aten\.(\w{1,60})(?:\.\w{1,40})?: in-place operations that require placement changes are not supported"
)
_OPTIMIZER = compiled_when_used(r"/optim(?:izers?)?/_?(\w{1,40})\.py$")


def _of_placement(raised: RaisedException) -> Told:
    """DTensor keeps a tensor's placement where it is changed in place: what is added has another one."""
    found = _IN_PLACE.search(raised.message.text)
    if found is None:
        return None, None
    paths = [frame.path.replace("\\", "/") for frame in reversed(raised.frames)]
    optimizer = next((match.group(1) for path in paths if (match := _OPTIMIZER.search(path))), "")
    if not optimizer:
        return (
            Text(
                "{operator} changes a DTensor in place by one that is laid out otherwise over the ranks",
                "{operator} 用布局不同的张量就地修改 DTensor",
            ).format(operator=found.group(1)),
            Text(
                "redistribute the other tensor to the placements of the first before, or do it out of place",
                "先把另一个张量 redistribute 成与前者相同的布局，或不做就地修改",
            ),
        )
    return (
        Text(
            "the optimizer ({optimizer}) makes an update that is laid out otherwise over the ranks than the sharded "
            "parameter (a DTensor, as FSDP2 makes), as with a parameter of one row or column",
            "优化器（{optimizer}）得到的更新与被切分的参数（DTensor，如 FSDP2 所做）布局不同，例如只有一行或一列的参数",
        ).format(optimizer=optimizer),
        Text(
            "give such parameters (heads, norms, embeddings, weights of one row) to AdamW, take an optimizer made "
            "for sharded parameters, or leave these modules unsharded",
            "把这类参数（head、norm、embedding、只有一行的权重）交给 AdamW，使用支持切分参数的优化器，或不切分这些模块",
        ),
    )


_RULES: tuple[Callable[[RaisedException], Told], ...] = (
    _of_attribute,
    _of_checkpoint_key,
    _of_generated_file,
    _of_lengths,
    _of_placement,
)
