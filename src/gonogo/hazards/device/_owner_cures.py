"""The cure of a device mismatch, by whose the tensor out of place is."""

from __future__ import annotations

from gonogo.finding import Text
from gonogo.hazards.facts.mismatch_in_log import Owner

_MOVE_INPUT = Text(
    en="Move the batch to the model's device before the forward, and make tensors where they are used "
    "(device=x.device)",
    zh="前向之前把 batch 移到模型所在设备，并在使用处创建张量（device=x.device）",
)
_MOVE_MODULE = Text(
    en="Move the part that the line belongs to with the model, after everything that makes or replaces it: "
    "module.to(device)",
    zh="在所有创建或替换该部分的代码之后，把它与模型一起移动：module.to(device)",
)
_OTHER_VERSION = Text(
    en="Where the line is in a library or a model's remote code: try a newer version of it",
    zh="若出错行在库或模型的远程代码中：尝试其更新版本",
)

OWNER_CURES: dict[Owner, tuple[Text, ...]] = {
    Owner.GRADIENT: (
        Text(
            en="Use another version of the engine that offloads (DeepSpeed >= 0.14.3), or no offload of the optimizer",
            zh="更换执行卸载的引擎版本（DeepSpeed >= 0.14.3），或不卸载优化器",
        ),
    ),
    Owner.OPTIMIZER: (
        Text(
            en="Load the optimizer's state after the model is on its device, and create the optimizer after model.to; "
            "its state must be where the parameters are (upgrade torch where load_state_dict puts it elsewhere)",
            zh="在模型到达设备之后再创建优化器、加载优化器状态；状态须与参数在同一设备（若 load_state_dict 放错位置，请"
            "升级 torch）",
        ),
    ),
    Owner.QUANTIZED: (
        Text(
            en='Load the quantized model whole onto the process\'s GPU: device_map={"": local_rank}; no CPU offload',
            zh='把量化模型整体加载到该进程的 GPU：device_map={"": local_rank}，不要卸载到 CPU',
        ),
    ),
    Owner.ADAPTER: (
        Text(
            en="Upgrade PEFT, or move the adapter's parameters to the base weight's device after get_peft_model",
            zh="升级 PEFT，或在 get_peft_model 之后把适配器参数移到基座权重所在设备",
        ),
    ),
    Owner.SUBMODULE: (
        Text(
            en="Leave the part out where it is not trained, or upgrade the package that defines it; ZeRO-2 builds it "
            "without zero.Init",
            zh="不训练该部分时不要构建它，或升级定义它的软件包；ZeRO-2 构建时不使用 zero.Init",
        ),
    ),
    Owner.ROTARY: (
        Text(
            en="Upgrade transformers or the model's code, or move cos and sin to q.device before they are used",
            zh="升级 transformers 或模型代码，或在使用前把 cos、sin 移到 q.device",
        ),
    ),
    Owner.BUFFER: (
        Text(
            en="Register the tensor with register_buffer, or move it where it is used: self.buffer.to(x.device)",
            zh="用 register_buffer 注册该张量，或在使用处移动：self.buffer.to(x.device)",
        ),
        _MOVE_INPUT,
    ),
    Owner.INPUT: (_MOVE_INPUT,),
    Owner.WEIGHT: (_MOVE_MODULE,),
    Owner.UNKNOWN: (_MOVE_INPUT, _MOVE_MODULE, _OTHER_VERSION),
}
