from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class OpBuildLibaioMissing(LoggedHazard):
    """Offload to NVMe needs DeepSpeed's operator async_io, and that needs libaio with its headers.
    ## What happens
    "RuntimeError: Unable to JIT load the async_io op due to it not being compatible due to hardware/software issue",
    with "async_io requires the dev libaio .so object and headers but these were not found" somewhere above; or
    "AssertionError: Unable to pre-compile async_io" at installation.
    ## Why
    The operator is compiled against `libaio.h` and `libaio.so`. Images have neither, and conda's compiler does not
    look where apt puts them.
    ## Example
    ```sh
    pip install deepspeed                                       # wrong for NVMe offload: no libaio.h here
    apt-get install -y libaio-dev && pip install deepspeed      # right
    ```
    ## Cure
    `apt-get install libaio-dev` (`yum install libaio-devel`) on each node; where it lies elsewhere (conda install
    libaio): `CFLAGS="-I$CONDA_PREFIX/include" LDFLAGS="-L$CONDA_PREFIX/lib"`. `ds_report` then shows async_io as
    compatible.
    ## When it is safe
    Without offload to NVMe: offload to the CPU does not need it.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/2503: the error at run time, and what the builder asks for
    - https://github.com/deepspeedai/DeepSpeed/issues/1401: the error at installation
    - https://github.com/deepspeedai/DeepSpeed/issues/1126: libaio without its headers
    """

    name = "op-build-libaio-missing"
    title = Text("NVMe offload cannot be built: libaio is missing", "无法编译 NVMe 卸载算子：缺少 libaio")
    log_words = ("async_io", "libaio")
    signs = (
        Sign(Pattern(r"Unable to (?:JIT load the |pre-compile )async_io"), Certainty.CERTAIN),
        Sign(Pattern(r"async_io requires the dev libaio|async_io: please install the libaio"), Certainty.POSSIBLE),
        Sign(Pattern(r"(?:libaio\.h|cannot find -laio)"), Certainty.LIKELY),
    )
    cause = Text(
        "DeepSpeed's operator async_io, which offload to NVMe needs, could not be built: libaio or its headers are not "
        "where the compiler looks.",
        "NVMe 卸载所需的 async_io 算子没有编译成功：编译器找不到 libaio 或其头文件。",
    )
    cures = (
        Text(
            "apt-get install libaio-dev (yum install libaio-devel) on each node; ds_report then shows async_io as "
            "compatible",
            "在每个节点执行 apt-get install libaio-dev（yum install libaio-devel）；之后 ds_report 显示 async_io 兼容",
        ),
        Text(
            'Where libaio lies elsewhere: CFLAGS="-I$CONDA_PREFIX/include" LDFLAGS="-L$CONDA_PREFIX/lib"',
            '若 libaio 装在别处：CFLAGS="-I$CONDA_PREFIX/include" LDFLAGS="-L$CONDA_PREFIX/lib"',
        ),
        Text(
            'Or offload to the CPU, which does not need it ("device": "cpu")',
            '或卸载到 CPU，它不需要该算子（"device": "cpu"）',
        ),
    )
    confirm = Text('The run offloads to NVMe ("device": "nvme")', '训练使用 NVMe 卸载（"device": "nvme"）')
