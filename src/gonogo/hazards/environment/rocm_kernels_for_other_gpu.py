from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_FAULT = Pattern(r"Memory access fault by GPU node-\d+")


class RocmKernelsForOtherGpu(LoggedHazard):
    """A kernel on an AMD GPU reads or writes memory that is not mapped, mostly since it was made for another GPU.
    ## What happens
    "Memory access fault by GPU node-2 (Agent handle: 0x…) on address (nil). Reason: Page not present or supervisor
    privilege", and the process aborts, without a Python traceback: at the first operator, or in the midst of training.
    ## Why
    HSA_OVERRIDE_GFX_VERSION makes ROCm take the GPU for another architecture. It lets cards run that a build has no
    kernels for; set for one card and left for the next, or beside one of another kind, its kernels compute addresses
    that this GPU does not have. It is a variable for debugging, and no configuration that AMD supports. Without it, a
    ROCm, a driver and a torch of different releases, a GPU that ROCm does not support, or a fault of the kernel itself
    end so too.
    ## Example
    ```sh
    HSA_OVERRIDE_GFX_VERSION=10.3.0 python train.py   # wrong on an MI210 (gfx90a)
    env -u HSA_OVERRIDE_GFX_VERSION python train.py   # right
    ```
    ## Cure
    Unset HSA_OVERRIDE_GFX_VERSION (or set that of this very card, where its architecture has no kernels of its own).
    Else a ROCm, a driver and a torch of one release; AMD_SERIALIZE_KERNEL=3 shows which operator faults.
    ## When it is safe
    On GPUs that ROCm supports, without the variable.
    ## Sources
    - https://github.com/ROCm/legacy-rocm-build/issues/5238: an MI210 taken for gfx1030
    - https://github.com/ollama/ollama/issues/8851: 11.0.0 set where it was 10.3.0
    - https://github.com/ROCm/legacy-rocm-build/issues/2235: one of two kinds of cards faults
    - https://github.com/ROCm/legacy-rocm-build/issues/4021: in the midst of a training on MI300X
    """

    name = "rocm-kernels-for-other-gpu"
    title = Text("A kernel on an AMD GPU touches memory that is not there", "AMD GPU 上的内核访问了不存在的内存")
    log_words = ("Memory access fault by GPU",)
    anywhere = True
    signs = (
        Sign(
            _FAULT,
            beside=Pattern(r"HSA_OVERRIDE_GFX_VERSION\W{1,4}\d"),
            cause=Text(
                "HSA_OVERRIDE_GFX_VERSION makes ROCm take the GPU for another architecture, and a kernel touched "
                "memory that is not mapped.",
                "HSA_OVERRIDE_GFX_VERSION 使 ROCm 把 GPU 当作另一种架构，某个内核访问了未映射的内存。",
            ),
        ),
        Sign(_FAULT, Certainty.POSSIBLE),
    )
    cause = Text(
        "A kernel on an AMD GPU touched memory that is not mapped: kernels for another architecture "
        "(HSA_OVERRIDE_GFX_VERSION), or a ROCm, a driver and a torch of different releases, are what usually makes it.",
        "AMD GPU 上的某个内核访问了未映射的内存：常见原因是内核属于另一种架构（HSA_OVERRIDE_GFX_VERSION），"
        "或 ROCm、驱动与 torch 的版本不一致。",
    )
    cures = (
        Text(
            "unset HSA_OVERRIDE_GFX_VERSION, or set that of this very card",
            "unset HSA_OVERRIDE_GFX_VERSION，或设为这张卡自己的版本",
        ),
        Text(
            "Otherwise a ROCm, a driver and a torch of one release; AMD_SERIALIZE_KERNEL=3 shows which operator faults",
            "否则使用同一版本的 ROCm、驱动与 torch；AMD_SERIALIZE_KERNEL=3 可显示出错的算子",
        ),
    )
    confirm = Text(
        "rocminfo names another gfx than the card has, or env | grep HSA_OVERRIDE shows the variable",
        "rocminfo 显示的 gfx 与显卡不符，或 env | grep HSA_OVERRIDE 显示该变量",
    )
