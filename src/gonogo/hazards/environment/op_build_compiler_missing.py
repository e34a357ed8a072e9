from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class OpBuildCompilerMissing(LoggedHazard):
    """DeepSpeed or PyTorch compiles an operator when the run starts, and there is no C++ compiler.
    ## What happens
    "subprocess.CalledProcessError: Command '['which', 'c++']' returned non-zero exit status 1." where CPUAdam or
    FusedAdam is made; with torch.compile "InvalidCxxCompiler: No working C++ compiler found", with Triton
    "RuntimeError: Failed to find C compiler. Please specify via CC environment variable".
    ## Why
    Operators that were not built at installation are compiled at the first use. Images made for running only
    (`*-runtime`) and slim ones have no compiler.
    ## Example
    ```dockerfile
    FROM pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime    # wrong: no compiler, no nvcc
    FROM pytorch/pytorch:2.9.0-cuda12.8-cudnn9-devel      # right
    ```
    ## Cure
    `apt-get install build-essential` (`yum install gcc-c++`; `conda install gxx_linux-64`) on each node, or an image
    with the tools (`-devel`). Where another is to be taken: `CXX=/path/to/g++ CC=/path/to/gcc`.
    ## When it is safe
    Where the operators were built at installation (`DS_BUILD_OPS=1`), and nothing is compiled at run time.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/1649: which c++ finds nothing; gcc-c++ cures it
    - https://github.com/FlagOpen/FlagEmbedding/issues/232: the same with a fine-tune under DeepSpeed
    - https://github.com/ssbuild/chatglm_finetuning/issues/165: through Lightning
    """

    name = "op-build-compiler-missing"
    title = Text("Operators cannot be built: there is no C++ compiler", "无法编译算子：缺少 C++ 编译器")
    log_words = ("which', 'c++", "compiler", "g++")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"\['which', '(?:c\+\+|g\+\+|gcc|cc)'\]'? returned non-zero|No working C\+\+ compiler found"
                r"|Failed to find C compiler"
            ),
            Certainty.CERTAIN,
        ),
        Sign(
            Pattern(
                r"(?:c\+\+|g\+\+|x86_64-linux-gnu-g\+\+|gcc): (?:command )?not found"
                r"|No such file or directory: '(?:\S*/)?(?:c\+\+|g\+\+|gcc|x86_64-linux-gnu-g\+\+)'"
            )
        ),
    )
    cause = Text(
        "An operator is compiled at the first use, and the process finds no C++ compiler.",
        "算子在首次使用时编译，而该进程找不到 C++ 编译器。",
    )
    cures = (
        Text(
            "Install one on each node: apt-get install build-essential (yum install gcc-c++), or take an image with "
            "the tools (-devel)",
            "在每个节点安装编译器：apt-get install build-essential（yum install gcc-c++），或使用带工具的镜像（-devel"
            "）",
        ),
        Text(
            "Or have the operators built beforehand: DS_BUILD_OPS=1 pip install deepspeed, where there is a compiler",
            "或在有编译器的机器上预先编译：DS_BUILD_OPS=1 pip install deepspeed",
        ),
    )
