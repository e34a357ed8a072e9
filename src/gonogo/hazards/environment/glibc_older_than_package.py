from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_SAID = r"version `?(?P<wants>(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)'? not found(?: \(required by (?P<package>[^()\s]+)\))?"


class GlibcOlderThanPackage(LoggedHazard):
    """A compiled package needs a newer C or C++ library than the one that the process loaded.
    ## What happens
    "ImportError: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by
    .../flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so)", or the same of libstdc++.so.6 and `GLIBCXX_3.4.29`;
    transformers shows it as "Failed to import transformers.models...".
    ## Why
    A wheel, or an extension that was compiled on another machine or by a newer compiler, asks for the functions of the
    glibc or libstdc++ that it was built against. Enterprise Linux 8 has glibc 2.28, Ubuntu 20.04 has 2.31, Debian 11
    has 2.31; flash-attn's wheels of 2.8 ask for 2.32. A conda environment brings a libstdc++ of its own, which may be
    older than the compiler's.
    ## Example
    ```sh
    ldd --version                                              # 2.31
    pip install flash-attn==2.8.2                              # wrong: the wheel asks for GLIBC_2.32
    FLASH_ATTENTION_FORCE_BUILD=TRUE pip install --no-build-isolation flash-attn==2.8.2    # right: compiled here
    ```
    ## Cure
    glibc belongs to the system: compile the package on this machine, take an older release whose wheel fits, or use a
    container image with a newer one (Ubuntu 22.04). libstdc++ can be put before the old one: conda install -c
    conda-forge libstdcxx-ng, or LD_LIBRARY_PATH with the compiler's.
    ## When it is safe
    Where `python -c "import flash_attn_2_cuda"` (or the package that is named) says nothing on the machine of the run.
    ## Sources
    - https://github.com/Dao-AILab/flash-attention/issues/1708: a wheel for glibc 2.32 on Enterprise Linux 8
    - https://github.com/Dao-AILab/flash-attention/issues/1762: the same on Debian, with glibc 2.31
    - https://github.com/SkyworkAI/Matrix-3D/issues/28: as transformers shows it
    - https://github.com/deepspeedai/DeepSpeed/issues/2886: libstdc++ of a conda environment, and a compiled operator
    """

    name = "glibc-older-than-package"
    title = Text(
        "A compiled package needs a newer glibc or libstdc++ than there is",
        "编译好的包需要比系统更新的 glibc 或 libstdc++",
    )
    log_words = ("' not found (required by", "GLIBC_", "GLIBCXX_", "CXXABI_")
    traces = ("libc.so.6: version", "libstdc++.so.6: version")
    signs = (
        Sign(Pattern(_SAID), Certainty.CERTAIN, types=("ImportError", "OSError"), lines=False),
        Sign(Pattern(_SAID), Certainty.LIKELY),
    )
    cause = Text(
        "{package} was built against {wants}, which the library that this process loaded does not have.",
        "{package} 编译时依赖 {wants}，而该进程加载的库没有这一版本。",
    )
    cures = (
        Text(
            "GLIBC: compile the package on this machine (pip install --no-build-isolation --no-binary), take an older "
            "release whose wheel fits, or a container with a newer system (Ubuntu 22.04 has 2.35)",
            "GLIBC：在本机编译该包（pip install --no-build-isolation --no-binary），安装 wheel 匹配的较旧版本，"
            "或使用系统较新的容器（Ubuntu 22.04 为 2.35）",
        ),
        Text(
            "GLIBCXX or CXXABI: conda install -c conda-forge libstdcxx-ng, or put the compiler's libstdc++ first in "
            "LD_LIBRARY_PATH; delete ~/.cache/torch_extensions so that operators are compiled anew",
            "GLIBCXX 或 CXXABI：conda install -c conda-forge libstdcxx-ng，或把编译器的 libstdc++ 放到 LD_LIBRARY_PATH "
            "最前；删除 ~/.cache/torch_extensions 以重新编译算子",
        ),
    )
    confirm = Text(
        "strings of that libc or libstdc++ don't list the version; ldd --version says an older one",
        "对该 libc 或 libstdc++ 执行 strings 看不到这一版本；ldd --version 显示较旧的版本",
    )
