from gonogo.hazards.version_rule import NotInstalled
from gonogo.hazards.rule import Certainty, Field, Pattern, Refusal, Run, Text


class LigerKernelNotInstalled(NotInstalled):
    """Liger's kernels are asked for, and their package is not installed.
    ## What happens
    "ImportError: You have set `use_liger_kernel` to `True` but liger-kernel >= 0.3.0 is not available. Please install
    it with `pip install liger-kernel`".
    ## Why
    The kernels are a package of their own, which neither transformers nor trl requires. The name counts:
    `liger_kernel_nightly` is not taken for it.
    ## Example
    ```sh
    pip install trl    # wrong: the run sets use_liger_kernel
    pip install trl liger-kernel    # right
    ```
    ## Cure
    pip install liger-kernel, or use_liger_kernel: false.
    ## When it is safe
    Where the package is installed after the listing was made, or the listing is of another environment.
    ## Sources
    - https://github.com/huggingface/trl/issues/2997: the ImportError, with a package of another name
    - https://github.com/linkedin/Liger-Kernel#installation: how it is installed
    """

    name = "liger-kernel-not-installed"
    title = Text("liger-kernel is asked for and not installed", "启用了 liger-kernel 但没有安装")
    refusal = Refusal(Pattern(r"`use_liger_kernel` to `?True`? but liger-kernel"), Certainty.LIKELY)
    packages = ("liger-kernel",)
    cause = Text(
        "{asked} is on, and liger-kernel is not among the installed packages.",
        "{asked} 已开启，而已安装的包中没有 liger-kernel。",
    )
    cure = (Text("Or turn {asked} off", "或关闭 {asked}"),)

    def asked(self, run: Run) -> tuple[str, Field] | None:
        """The argument that turns its kernels on."""
        for name in ("use_liger_kernel", "use_liger", "enable_liger_kernel"):
            if run.arguments.get(name).truth is True:
                return name, run.arguments.get(name)
        return None
