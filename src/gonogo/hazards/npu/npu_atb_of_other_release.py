from gonogo.hazards.facts.shell_lines import is_shell_script, lines_from
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Severity, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_SOURCED = Pattern(r"^\s*(?:source|\.)\s+\S*nnal/atb/set_env\.sh\s*(?:[;&#]|$)")
_ACTIVATED = Pattern(r"^\s*(?:(?:conda|mamba|micromamba) activate\b|(?:source|\.)\s+\S+/bin/activate\b)")
_CURE = (
    Text(
        "Install torch and torch_npu and activate their environment first, then in a new shell source CANN's "
        "set_env.sh and nnal/atb/set_env.sh (--cxx_abi=0 or 1 sets it by hand)",
        "先安装 torch 与 torch_npu 并激活其环境，再在新的 shell 中 source CANN 的 set_env.sh 和 "
        "nnal/atb/set_env.sh（可用 --cxx_abi=0 或 1 手动指定）",
    ),
    Text(
        "Install CANN's toolkit, kernels and NNAL in one version, the one that torch_npu names",
        "把 CANN 的 toolkit、kernels 与 NNAL 装成同一版本，即 torch_npu 对应的版本",
    ),
)


class NpuAtbOfOtherRelease(LoggedHazard):
    """Ascend's operator library ATB (NNAL) is of another release or C++ ABI than torch_npu.
    ## What happens
    "OSError: ... libtbe_adapter.so: undefined symbol: _ZN3Mki2DlC1ERKNSt7__cxx11...", "libop_plugin_atb.so: undefined
    symbol: _ZN3atb15CreateOperation...", "undefined symbol: _ZNK6AsdOps3Ops18GetOperationByNameERKSs", when torch_npu
    loads its operators: at `import torch_npu`, vllm_ascend or mindie_turbo.
    ## Why
    ATB comes in two builds, cxx_abi_0 and cxx_abi_1. `nnal/atb/set_env.sh` takes the one of the torch that `python`
    imports at that moment; sourced before torch is installed, or before its environment is activated, it takes the
    other. Or NNAL is of another CANN version than the toolkit and torch_npu.
    ## Example
    ```sh
    source /usr/local/Ascend/nnal/atb/set_env.sh    # wrong: before the next line it asks another python
    conda activate train
    source /usr/local/Ascend/nnal/atb/set_env.sh    # right
    ```
    ## Cure
    Source it last, in a new shell; CANN, kernels and NNAL of one version.
    ## When it is safe
    Where `python -c "import torch; print(torch.compiled_with_cxx11_abi())"` fits the end of ATB_HOME_PATH.
    ## Sources
    - https://github.com/vllm-project/vllm-ascend/issues/1144: a maintainer: set_env.sh before torch was installed
    - https://github.com/Ascend/pytorch/issues/99: torch_npu 2.7.1 with CANN 8.3
    - https://github.com/vllm-project/vllm-ascend/issues/750: an ATB without the operator that torch_npu asks for
    - https://github.com/xLLM-AI/xllm/pull/1058: the path of the wrong ABI
    """

    name = "npu-atb-of-other-release"
    title = Text("Ascend's ATB does not fit torch_npu", "昇腾的 ATB 与 torch_npu 不匹配")
    log_words = ("undefined symbol",)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"(?:nnal/atb|libop_plugin_atb|libtbe_adapter|libatb\w*|libasdops\w*|liblcal|libmki)\S*: "
                r"undefined symbol: (?P<symbol>\w+)"
            )
        ),
        Sign(Pattern(r"undefined symbol: (?P<symbol>_ZNK?\d(?:Mki|atb|AsdOps)\w+)")),
    )
    cause = Text(
        "The symbol {symbol} of Ascend's ATB is missing: the ATB that is loaded has another C++ ABI, or is of another "
        "CANN version.",
        "缺少昇腾 ATB 的符号 {symbol}：加载的 ATB 是另一种 C++ ABI，或属于另一个 CANN 版本。",
    )
    cures = _CURE
    confirm = Text(
        "echo $ATB_HOME_PATH ends with cxx_abi_0 where torch.compiled_with_cxx11_abi() is True, or the other way "
        "round; or the version under nnal is not the toolkit's",
        "torch.compiled_with_cxx11_abi() 为 True 而 echo $ATB_HOME_PATH 以 cxx_abi_0 结尾，或相反；或 nnal 的版本与 "
        "toolkit 不同",
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """set_env.sh of ATB before the environment that has torch is activated."""
        if "nnal/atb/set_env.sh" not in launch.source.text or not is_shell_script(launch.source):
            return
        lines = tuple(lines_from(launch.source, 1))
        sourced = [line for line in lines if _SOURCED.search(line.code)]
        activated = [line for line in lines if _ACTIVATED.search(line.code)]
        if sourced and activated and sourced[-1].number < activated[-1].number:
            yield self.finding(
                Text(
                    "ATB's set_env.sh is sourced before the environment with torch is activated: it chooses its C++ "
                    "ABI by the python that is there until then.",
                    "在激活含 torch 的环境之前 source 了 ATB 的 set_env.sh：它按当时的 python 选择 C++ ABI。",
                ),
                certainty=Certainty.POSSIBLE,
                severity=Severity.WARNING,
                cure=_CURE[:1],
                spans=(sourced[-1].place().span(), activated[-1].place().span(Text("activated here", "在此处激活"))),
                confirm=self.confirm,
            )
