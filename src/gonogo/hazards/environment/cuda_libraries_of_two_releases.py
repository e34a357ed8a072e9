from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class CudaLibrariesOfTwoReleases(LoggedHazard):
    """A CUDA library of another release than the one that torch was built with is found first.
    ## What happens
    "ImportError: .../nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version
    libnvJitLink.so.12", at `import torch`, before anything is trained.
    ## Why
    torch's wheels bring CUDA's libraries as packages (nvidia-cusparse-cu12, nvidia-nvjitlink-cu12 …).
    `LD_LIBRARY_PATH` goes before them: a toolkit of another minor release (`/usr/local/cuda-12.1/lib64`, a module of
    the cluster, conda's lib) gives an older libnvJitLink to a newer libcusparse. The same where pip has left packages
    of two releases.
    ## Example
    ```sh
    export LD_LIBRARY_PATH=/usr/local/cuda-12.1/lib64:$LD_LIBRARY_PATH    # wrong beside a torch for CUDA 12.4
    unset LD_LIBRARY_PATH                                                 # right: torch's wheel brings its own
    ```
    ## Cure
    `unset LD_LIBRARY_PATH` (or take the toolkit's folder out of it) in the script that launches; else put the wheel's
    own first: `LD_LIBRARY_PATH=$(python -c "import
    nvidia.nvjitlink,os;print(os.path.dirname(nvidia.nvjitlink.__file__)+'/lib')")`. Where pip mixed releases:
    reinstall torch in a fresh environment.
    ## When it is safe
    Where the toolkit has the minor release of `torch.version.cuda`, or is not in `LD_LIBRARY_PATH`.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/111469: the missing symbol, with torch 2.1
    - https://github.com/pytorch/pytorch/issues/134929: conda's lib folder in LD_LIBRARY_PATH
    - https://github.com/infiniflow/ragflow/issues/4466: ldd shows the toolkit's library in the place of torch's
    """

    name = "cuda-libraries-of-two-releases"
    title = Text("torch loads a CUDA library of another release", "torch 加载了另一版本的 CUDA 库")
    log_words = ("undefined symbol", "nvJitLink")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"undefined symbol: _*nvJitLink|lib(?:cusparse|cublas|cublasLt|cusolver|cufft|nvJitLink"
                r"|nvrtc)\S*\.so\S*: (?:undefined symbol|symbol \S+ version|version .* not found)"
                r"|undefined symbol: cublasLt\w+, version libcublasLt"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "Two of CUDA's libraries are of different releases: LD_LIBRARY_PATH, or a package, gives torch one that it was "
        "not built with.",
        "CUDA 的两个库版本不同：LD_LIBRARY_PATH 或某个包让 torch 加载了与其编译版本不符的库。",
    )
    cures = (
        Text(
            "unset LD_LIBRARY_PATH in the script that launches (torch's wheel brings its own libraries), or take the "
            "CUDA toolkit's folder out of it",
            "在启动脚本中 unset LD_LIBRARY_PATH（torch 的 wheel 自带这些库），或去掉其中 CUDA 工具包的目录",
        ),
        Text(
            "Where pip list shows nvidia-*-cu12 of two releases: install torch anew in a fresh environment",
            "若 pip list 中 nvidia-*-cu12 有两个版本：在新环境中重新安装 torch",
        ),
    )
