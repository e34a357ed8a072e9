from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_NO_DATA = Pattern(r"Cannot copy out of meta tensor; no data")
_ZERO3 = Pattern(r"(?i)zero[-_ ]?(?:stage)?[-_ ]?3|partition_parameters|ds_z3|\"?stage\"?\W{1,4}3\b|zero\.Init")


class Zero3WeightsLeftOnMeta(LoggedHazard):
    """Under ZeRO-3 a weight is to be moved or partitioned that was made without data and never got any.
    ## What happens
    "NotImplementedError: Cannot copy out of meta tensor; no data!" (or RuntimeError) in `from_pretrained`, below
    `partition_parameters.py`, or "While copying the parameter named ..., an exception occurred : ('Cannot copy out of
    meta tensor; no data!',)".
    ## Why
    zero.Init partitions each parameter right after the module that holds it was made. Code that makes it on the meta
    device first (`skip_init`, ChatGLM's `empty_init=True`, `init_empty_weights`, low_cpu_mem_usage, a quantizer) leaves
    nothing to partition. Some releases of transformers loaded so by themselves under ZeRO-3.
    ## Example
    ```python
    AutoModel.from_pretrained("THUDM/chatglm3-6b", trust_remote_code=True)                      # wrong under ZeRO-3
    AutoModel.from_pretrained("THUDM/chatglm3-6b", trust_remote_code=True, empty_init=False)    # right
    ```
    ## Cure
    empty_init=False for ChatGLM's code; no low_cpu_mem_usage, device_map or quantization under ZeRO-3; ZeRO-2, where
    the model fits; another transformers, where its own loading does it.
    ## When it is safe
    Where no module is made on the meta device between zero.Init and the end of from_pretrained.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeedExamples/issues/509: ChatGLM's skip_init below zero.Init
    - https://github.com/deepspeedai/DeepSpeedExamples/issues/520: the same with its frames
    - https://github.com/hiyouga/LlamaFactory/issues/2199: ChatGLM3 with ZeRO-3; empty_init
    - https://github.com/modelscope/ms-swift/issues/9345: ZeRO-2 and a single GPU go well
    - https://github.com/huggingface/transformers/issues/37300: a release that left all weights there
    """

    name = "zero3-weights-left-on-meta"
    title = Text("Under ZeRO-3 a weight has no data yet when it is moved", "ZeRO-3 下移动权重时它还没有数据")
    log_words = ("out of meta tensor",)
    traces = ("skip_init", "empty_init=empty_init")
    yields_to = ("zero3-quantized-model", "zero3-low-cpu-mem-device-map")
    signs = (
        Sign(_NO_DATA, frames=(("zero/partition_parameters.py",),)),
        Sign(_NO_DATA, beside=_ZERO3),
        Sign(
            Pattern(r"Cannot copy out of meta tensor; no data|While copying the parameter named.*meta tensor"),
            Certainty.POSSIBLE,
            unless=Pattern(r"fully_shard|(?i:fsdp_?2\b)"),
        ),
    )
    cause = Text(
        "A weight was made on the meta device, without data, and is to be moved or partitioned before it was loaded.",
        "权重建立在没有数据的 meta 设备上，尚未加载就要被移动或切分。",
    )
    cures = (
        Text(
            "Under ZeRO-3: empty_init=False for ChatGLM's code, no low_cpu_mem_usage, device_map or quantization; or "
            "ZeRO-2",
            "ZeRO-3 下：ChatGLM 的代码用 empty_init=False，不用 low_cpu_mem_usage、device_map 与量化；或改用 ZeRO-2",
        ),
        Text(
            "Without ZeRO-3: model.to_empty(device=...) before the weights are loaded, or another transformers",
            "没有 ZeRO-3 时：先 model.to_empty(device=...) 再加载权重，或换一个 transformers 版本",
        ),
    )
    confirm = Text("It loads with ZeRO-2 and the same versions", "同样的版本在 ZeRO-2 下可以加载")
