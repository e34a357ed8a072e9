from gonogo.hazards.rule import Field, Run
from gonogo.hazards.version_rule import PackageNotInstalled


class LigerKernelNotInstalled(PackageNotInstalled):
    def requested_by(self, run: Run) -> tuple[str, Field] | None:
        """The argument that turns Liger kernels on."""
        for name in ("use_liger_kernel", "use_liger", "enable_liger_kernel"):
            if run.arguments.get(name).truth is True:
                return name, run.arguments.get(name)
        return None
