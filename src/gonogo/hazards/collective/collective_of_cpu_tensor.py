import ast

from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_COLLECTIVES = tuple(
    f"torch.distributed.{name}"
    for name in ("all_reduce", "broadcast", "reduce", "all_gather_into_tensor", "send", "recv")
)
_MAKERS = tuple(f"torch.{name}" for name in ("tensor", "zeros", "ones", "empty", "full", "arange", "as_tensor"))
_SAID = Pattern(r"No backend type ass(?:ociated with device type cpu|o?c?i?a?t?e?d?$)")


class CollectiveOfCpuTensor(LoggedHazard):
    """The process group has a backend for GPUs alone, and the tensor was never moved there.
    ## What happens
    `RuntimeError: No backend type associated with device type cpu` in `all_reduce`, `broadcast`, `all_gather`,
    `barrier` or an object collective.
    ## Why
    `init_process_group("nccl")` serves GPU tensors only. Metrics, counters, lengths and means are made on the CPU
    by default: `torch.tensor(x)`, `.cpu()`, numpy.
    ## Example
    ```python
    count = torch.tensor(len(batch))                       # wrong under NCCL
    count = torch.tensor(len(batch), device=device)        # right
    dist.all_reduce(count)
    ```
    ## Cure
    Move the tensor to the rank's GPU before the collective, and back after it. Or
    init_process_group(backend="cpu:gloo,cuda:nccl"). Raised in a library's import (unsloth under torchrun): start
    it with one process, or upgrade it.
    ## When it is safe
    With `init_process_group()` without a backend, or "cpu:gloo,cuda:nccl": then gloo takes it.
    ## Sources
    - https://github.com/ai2cm/ace/issues/562: a mean that was kept on the CPU
    - https://github.com/hiyouga/LlamaFactory/issues/8113: unsloth, imported under torchrun
    - https://github.com/zai-org/CogVLM/issues/328: in a fine-tune on ten GPUs
    - https://github.com/mistralai/mistral-inference/issues/252: a length that is broadcast
    """

    name = "collective-of-cpu-tensor"
    title = Text("A collective of an NCCL group is given a tensor on the CPU", "NCCL 组的集合通信得到一个 CPU 张量")
    log_words = ("No backend type ass",)
    ends_at = (
        ("distributed_c10d.py", "group.allreduce([tensor]"),
        ("distributed_c10d.py", ".broadcast([tensor]"),
        ("tensor/_api.py", "full_tensor"),
    )
    yields_to = (
        "zero3-offload-collective-cpu-tensor-regression",
        "fsdp-cpu-offload-device-mismatch",
        "ddp-module-on-cpu",
    )
    anywhere = True
    signs = (
        Sign(says=_SAID, frames=(("deepspeed/runtime/zero", "fsdp/"),), certainty=Certainty.POSSIBLE),
        Sign(
            says=_SAID,
            types=("RuntimeError",),
            frames=(("distributed_c10d.py",),),
            outside=("deepspeed/", "fsdp", "nn/parallel/distributed.py"),
            lines=False,
            certainty=Certainty.CERTAIN,
        ),
        Sign(
            says=_SAID,
            frames=(("distributed_c10d.py", "unsloth", "distributed/", "all_reduce", "broadcast", "all_gather"),),
        ),
        Sign(says=_SAID, beside=Pattern(r"(?i)unsloth")),
        Sign(says=_SAID, unless=Pattern(r"(?i)fsdp|offload"), certainty=Certainty.LIKELY),
        Sign(says=_SAID, certainty=Certainty.POSSIBLE),
    )
    cause = Text(
        "A collective was called with a tensor on the CPU, and its process group has no backend for the CPU.",
        "以 CPU 张量调用了集合通信，而其进程组没有 CPU 后端。",
    )
    cures = (
        Text(
            "Move the tensor to the rank's GPU before the collective, and back after it",
            "在集合通信之前把张量移到该 rank 的 GPU，之后再移回",
        ),
        Text(
            'Or init_process_group(backend="cpu:gloo,cuda:nccl")', '或 init_process_group(backend="cpu:gloo,cuda:nccl")'
        ),
        Text(
            "Raised in a library's import (unsloth under torchrun): start it with one process, or upgrade it",
            "若由库的导入引发（torchrun 下的 unsloth）：用单进程启动，或升级该库",
        ),
    )
    confirm = Text(
        "The innermost frame outside of torch makes its tensor without device=",
        "torch 之外最内层的代码创建张量时没有写 device=",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """A tensor that is made without a device, and given to a collective of an NCCL group."""
        backends = [
            call.argument(0) if call.node.args else call.keyword("backend")
            for call in script.calls("torch.distributed.init_process_group")
        ]
        if not backends or any(backend.string != "nccl" for backend in backends):
            return
        for call in script.calls(*_COLLECTIVES):
            given = call.node.args[0] if call.node.args else None
            made = script.bound_to(given) if isinstance(given, ast.Name) else given
            if not isinstance(made, ast.Call) or script.qualified(made.func) not in _MAKERS:
                continue
            if any(keyword.arg in (None, "device") for keyword in made.keywords):
                continue
            if b"set_default_device" in script.source.data:
                continue
            yield self.finding(
                Text(
                    "{tensor} is on the CPU, and the process group was made with NCCL, which has no backend for it.",
                    "{tensor} 在 CPU 上，而进程组以 NCCL 创建，没有相应的后端。",
                ).format(tensor=script.place(made).text),
                certainty=Certainty.LIKELY,
                cure=self.cures[:2],
                spans=(call.place.span(), script.place(made).span(), backends[0].span()),
            )
