from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.environment._machine import cpu_adam_takes_cuda, operator, variable
from gonogo.hazards.environment._op_build import COMPILE_ERROR, mismatch
from gonogo.hazards.environment._surroundings import first, text_of
from gonogo.hazards.facts.installed import span_of
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, Text

_OTHERS = Pattern(
    r"(?:CUDA|PyTorch) version mismatch! DeepSpeed ops were compiled"
    r"|Cuda extensions are being compiled with a version of Cuda that does not match"
)
_TOO_OLD = Pattern(r"(?:FlashAttention|flash-attn|FlashAttention-3) is only supported on CUDA (\d[\d.]*\d) and above")
_TWO = Pattern(
    r"Installed CUDA version (\d[\d.]*\d) does not match the\s+version torch was compiled with (\d[\d.]*\d)"
    r"|detected CUDA version \((\d[\d.]*\d)\) mismatches .*PyTorch ?\((\d[\d.]*\d)\)"
)
_CURE = (
    Text(
        "Make them one major version: install a PyTorch built with the toolkit's CUDA (pip install torch --index-url "
        "https://download.pytorch.org/whl/cu121), or the toolkit of torch.version.cuda, and let CUDA_HOME name it",
        "使两者大版本一致：安装按该工具包 CUDA 编译的 PyTorch（pip install torch --index-url "
        "https://download.pytorch.org/whl/cu121），或安装 torch.version.cuda 对应的工具包并让 CUDA_HOME 指向它",
    ),
    Text(
        "To try it as it is: export DS_SKIP_CUDA_CHECK=1 (neighbouring versions mostly work, 11 with 12 may crash)",
        "想直接尝试：export DS_SKIP_CUDA_CHECK=1（相近版本大多可用，11 与 12 混用可能崩溃）",
    ),
)


class CudaTorchVersionMismatch(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """nvcc of another major version than torch's CUDA, where DeepSpeed compiles an operator."""
        toolkit, cuda = environment.toolkit.string, environment.cuda.string
        if toolkit is None or cuda is None or toolkit.split(".")[0] == cuda.split(".")[0]:
            return
        built = operator(run, "cpu_adam", "fused_adam")
        if built is None or str(variable(environment, run, "DS_SKIP_CUDA_CHECK").get("0")) == "1":
            return
        # The check is made for the CPU's Adam as it is compiled; for others only where they are built beforehand.
        checked = cpu_adam_takes_cuda(environment) if built.name == "cpu_adam" else None
        if checked is False:
            return
        yield self.finding(
            Text(
                "nvcc is of CUDA {toolkit} and torch was built for {cuda}: DeepSpeed refuses to compile {name} with "
                "another major version.",
                "nvcc 属于 CUDA {toolkit}，而 torch 使用 {cuda}：DeepSpeed 拒绝用不同的大版本编译 {name}。",
            ).format(toolkit=toolkit, cuda=cuda, name=built.name),
            certainty=Certainty.LIKELY if checked else Certainty.POSSIBLE,
            cure=_CURE,
            spans=(built.span, span_of(environment, "torch"), environment.toolkit.span()),
            confirm=Text(
                "ds_report shows {name} as not installed, so that it is compiled at the start",
                "ds_report 显示 {name} 未安装，因此启动时要编译",
            ).format(name=built.name),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The refusal; where a compiler's error stands beside it, only a possibility."""
        evidence = mismatch(log) or first(log, _OTHERS)
        if evidence is None:
            yield from self._too_old(log)
            return
        found = _TWO.search(text_of(evidence))
        two = [group for group in found.groups() if group] if found else []
        compiled = first(log, COMPILE_ERROR) is not None
        yield self.log_finding(
            evidence,
            Text(
                "The CUDA toolkit is {toolkit}, and PyTorch was built with {torch}: DeepSpeed refuses to compile.",
                "CUDA 工具包为 {toolkit}，而 PyTorch 使用 {torch}：DeepSpeed 拒绝编译。",
            ).format(toolkit=two[0], torch=two[1])
            if len(two) == 2
            else Text(
                "Extensions were built, or are to be built, with another CUDA or PyTorch than the one that runs.",
                "扩展所用的（或将要使用的）CUDA 或 PyTorch 与运行时的不同。",
            ),
            cure=_CURE,
            certainty=Certainty.POSSIBLE if compiled else Certainty.CERTAIN,
            confirm=Text(
                "nvcc --version and torch.version.cuda differ in their major version, and no compiler's error follows",
                "nvcc --version 与 torch.version.cuda 大版本不同，且之后没有编译器报错",
            ),
        )

    def _too_old(self, log: FailureLog) -> Findings:
        """flash-attn's build, which asks nvcc for its version: mostly a distribution's old one comes first in PATH."""
        if (evidence := first(log, _TOO_OLD)) and (found := _TOO_OLD.search(text_of(evidence))):
            yield self.log_finding(
                evidence,
                Text(
                    "The nvcc that was found is older than CUDA {floor}, which flash-attn needs; the CUDA that torch "
                    "brings "
                    "has no nvcc.",
                    "找到的 nvcc 低于 flash-attn 所需的 CUDA {floor}；torch 自带的 CUDA 不含 nvcc。",
                ).format(floor=str(found.group(1))),
                cure=_CURE[:1],
                certainty=Certainty.LIKELY,
                confirm=Text(
                    "nvcc -V is older than torch.version.cuda (which nvcc: /usr/bin is the distribution's)",
                    "nvcc -V 低于 torch.version.cuda（which nvcc：/usr/bin 是发行版自带的）",
                ),
            )
