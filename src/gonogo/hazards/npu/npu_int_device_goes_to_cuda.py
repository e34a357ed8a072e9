from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.installed import describe_package, from_file, span_of, together
from gonogo.hazards.facts.on_npu import NO_CUDA, ON_NPU
from gonogo.hazards.rule import Certainty, Environment, Findings, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign, told

_FSDP2 = Pattern(r"(?i)fsdp_?2|fully_shard|fsdp_version")


class NpuIntDeviceGoesToCuda(LoggedHazard):
    """torch before 2.5.1 sends .to(0) into CUDA's initialisation, whatever the accelerator is.
    ## What happens
    `AssertionError: Torch not compiled with CUDA enabled` on an Ascend machine, since transformers was upgraded
    beyond 4.49, in loading or where inputs are moved.
    ## Why
    transformers above 4.49 passes the device as an index (`device_map={"": 0}`, `.to(0)`). An index without a type
    means the current accelerator from torch 2.5.1 on, and CUDA before.
    ## Example
    ```text
    torch==2.2.0        # wrong beside transformers 4.51 on an NPU
    torch-npu==2.2.0
    torch==2.5.1        # right
    torch-npu==2.5.1
    ```
    ## Cure
    Install torch and torch_npu 2.5.1 or newer, with the CANN that goes with them. Or transformers 4.49 and older;
    in code of your own: .to("npu:0"). from torch_npu.contrib import transfer_to_npu maps what asks for cuda.
    ## When it is safe
    With torch and torch_npu >= 2.5.1, or transformers up to 4.49.
    ## Sources
    - https://github.com/hiyouga/LlamaFactory/issues/7986: the message, and Ascend's explanation
    - https://github.com/huggingface/accelerate/pull/3790: another way to the same message
    - https://github.com/hiyouga/LlamaFactory/pull/10403: what LLaMA-Factory runs on 910B
    """

    name = "npu-int-device-goes-to-cuda"
    title = Text(
        "A device given as a number is taken for CUDA on an NPU machine", "在 NPU 机器上，以数字给出的设备被当作 CUDA"
    )
    log_words = ("not compiled with CUDA enabled",)
    signs = (
        Sign(says=NO_CUDA, beside=Pattern(r"torch(?:-npu)?==(?:1\.|2\.[0-4]\b|2\.5\.0)"), unless=_FSDP2),
        Sign(says=NO_CUDA, beside=ON_NPU, unless=_FSDP2, certainty=Certainty.LIKELY),
    )
    cause = Text(
        "This is a machine with NPUs, and something moved a tensor to a device given as a number, which this "
        "torch takes for CUDA's.",
        "这是 NPU 机器，而某处把张量移到以数字给出的设备，这个 torch 把它当作 CUDA 设备。",
    )
    cures = (
        Text(
            "Install torch and torch_npu 2.5.1 or newer, with the CANN that goes with them",
            "安装 2.5.1 或更新的 torch 与 torch_npu，以及与之对应的 CANN",
        ),
        Text(
            'Or transformers 4.49 and older; in code of your own: .to("npu:0")',
            '或 transformers 4.49 及更早；自己的代码中使用 .to("npu:0")',
        ),
        Text(
            "from torch_npu.contrib import transfer_to_npu maps what asks for cuda",
            "from torch_npu.contrib import transfer_to_npu 可映射对 cuda 的请求",
        ),
    )
    confirm = Text(
        "torch.__version__ is below 2.5.1, and the innermost frame of a library moves to a number",
        "torch.__version__ 低于 2.5.1，且最内层的库代码移动到数字设备",
    )

    def in_log(self, log: FailureLog) -> Findings:
        """The refusal, where there are NPUs."""
        if told(log, ON_NPU):
            yield from super().in_log(log)

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """torch_npu before 2.5.1 beside a transformers that passes numbers."""
        if not together(environment, "torch-npu", "transformers") or not from_file(environment, "transformers"):
            return
        if not environment.within("torch-npu", "<2.5.1") or not environment.within("transformers", ">4.49.0"):
            return
        yield self.finding(
            Text(
                "{transformers} gives devices as numbers, which torch takes for CUDA's before 2.5.1: {npu} is older.",
                "{transformers} 以数字给出设备，2.5.1 之前的 torch 会把它当作 CUDA 设备，而 {npu} 更旧。",
            ).format(
                transformers=describe_package(environment, "transformers"),
                npu=describe_package(environment, "torch-npu"),
            ),
            certainty=Certainty.LIKELY,
            cure=self.cures[:2],
            spans=(span_of(environment, "torch-npu"), span_of(environment, "transformers")),
        )
