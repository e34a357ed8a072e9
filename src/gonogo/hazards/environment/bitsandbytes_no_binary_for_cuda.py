from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_MISSING = Pattern(
    r"(?:Configured (?:\w+ )?binary not found|No compatible CUDA binary found) at "
    r"\S*libbitsandbytes_cuda(?P<cuda>\d{2,3})"
)


class BitsandbytesNoBinaryForCuda(LoggedHazard):
    """bitsandbytes looks for a library of torch's CUDA version, and its wheel ends at an older one.
    ## What happens
    `bitsandbytes library load error: Configured CUDA binary not found at .../libbitsandbytes_cuda129.so`, then
    `RuntimeError`, or later errors about functions that are missing.
    ## Why
    The wheel holds one library for each CUDA version that was out when it was made. A newer torch (cu129, cu130, a
    container's 13.1) asks for one that is not there.
    ## Example
    ```sh
    pip install bitsandbytes==0.46.0                     # wrong beside a torch for CUDA 12.9
    pip install -U bitsandbytes                          # right
    BNB_CUDA_VERSION=128 python train.py                 # right, too: the nearest that is there
    ```
    ## Cure
    pip install -U bitsandbytes (or build it for this CUDA). Or BNB_CUDA_VERSION=NNN, a version of the same major
    that `ls site-packages/bitsandbytes/*.so` shows.
    ## When it is safe
    Where `python -m bitsandbytes` ends with SUCCESS.
    ## Sources
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1688: CUDA 12.9, and what the wheel holds
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1848: CUDA 13.1 of a container
    - https://huggingface.co/docs/bitsandbytes/main/en/installation: BNB_CUDA_VERSION, and building it
    """

    name = "bitsandbytes-no-binary-for-cuda"
    title = Text(
        "This bitsandbytes brings no binary for the CUDA of the installed PyTorch",
        "这个 bitsandbytes 没有适配当前 PyTorch 的 CUDA 的二进制文件",
    )
    log_words = ("CUDA binary not found at", "libbitsandbytes_cuda", "binary found at")
    anywhere = True
    signs = (
        Sign(says=_MISSING, certainty=Certainty.CERTAIN),
        Sign(says=Pattern(r"libbitsandbytes_cuda(?P<cuda>\d{3})\w*\.so: cannot open shared object file")),
        Sign(cut=(("bitsandbytes/cextension.py", "get_native_library"),), within=1, certainty=Certainty.POSSIBLE),
    )
    cause = Text(
        "bitsandbytes asks for its library for CUDA {cuda}, and the installed wheel has none.",
        "bitsandbytes 需要 CUDA {cuda} 的库，而已安装的 wheel 中没有。",
    )
    cures = (
        Text(
            "pip install -U bitsandbytes (or build it for this CUDA)",
            "执行 pip install -U bitsandbytes（或针对该 CUDA 构建）",
        ),
        Text(
            "Or BNB_CUDA_VERSION=NNN, a version of the same major that `ls site-packages/bitsandbytes/*.so` shows",
            "或设 BNB_CUDA_VERSION=NNN，选 `ls site-packages/bitsandbytes/*.so` 中同一主版本的一个",
        ),
    )
    confirm = Text("python -m bitsandbytes says the same", "python -m bitsandbytes 给出同样的结果")

    def cause_told(self, match: Match | None) -> Text:
        """The cause, with the CUDA version that the library's name tells."""
        digits = str(match.groupdict().get("cuda") or "") if match is not None else ""
        return self.cause.format(cuda=f"{digits[:-1]}.{digits[-1]}" if digits else Text("this torch", "该 torch"))
