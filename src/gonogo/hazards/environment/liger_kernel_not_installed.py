"""liger-kernel-not-installed."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazards.environment._needs import not_installed
from gonogo.hazards.hazard import Hazard


class LigerKernelNotInstalled(Hazard):
    """Liger's kernels are asked for, and their package is not installed.

    ## What happens
    "ImportError: You have set `use_liger_kernel` to `True` but liger-kernel >= 0.3.0 is not available. Please install
    it with `pip install liger-kernel`".

    ## Why
    The kernels are a package of their own, which neither transformers nor trl requires. The name counts:
    `liger_kernel_nightly` is not taken for it.

    ## Cure
    pip install liger-kernel, or use_liger_kernel: false.

    ## When it is safe
    Where the package is installed after the listing was made, or the listing is of another environment.

    ## Sources
    - https://github.com/huggingface/trl/issues/2997: the ImportError, with a package of another name
    - https://github.com/linkedin/Liger-Kernel#installation: how it is installed
    """

    page_zh = """启用了 Liger kernel，但没有安装它的包。

    ## 现象
    “ImportError: You have set `use_liger_kernel` to `True` but liger-kernel >= 0.3.0 is not available. Please
    install it with `pip install liger-kernel`”。

    ## 原因
    这些 kernel 是独立的包，transformers 与 trl 都不依赖它。名字也有讲究：`liger_kernel_nightly` 不被承认。

    ## 解决办法
    执行 pip install liger-kernel，或设 use_liger_kernel: false。

    ## 何时安全
    在列出清单之后才安装该包，或清单属于另一个环境时。

    ## 来源
    - https://github.com/huggingface/trl/issues/2997：该 ImportError，包名不同的情况
    - https://github.com/linkedin/Liger-Kernel#installation：安装方法
    """

    name = "liger-kernel-not-installed"
    title = Text("liger-kernel is asked for and not installed", "启用了 liger-kernel 但没有安装")
    sources = (
        "https://github.com/huggingface/trl/issues/2997",
        "https://github.com/linkedin/Liger-Kernel#installation",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """The argument, and a complete listing without liger-kernel."""
        for name in ("use_liger_kernel", "use_liger", "enable_liger_kernel"):
            asked = run.arguments.get(name)
            if asked.truth is not True:
                continue
            yield from not_installed(
                self,
                environment,
                run,
                "liger-kernel",
                asked,
                Text(
                    "{name} is on, and liger-kernel is not among the installed packages.",
                    "{name} 已开启，而已安装的包中没有 liger-kernel。",
                ).format(name=name),
                cure=(Text("Or turn {name} off", "或关闭 {name}").format(name=name),),
            )
            return
