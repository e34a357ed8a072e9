from gonogo.hazards.environment._op_build import CLEAR
from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class OpBuildCxx17Needed(LoggedHazard):
    """An extension is compiled as C++14, and this PyTorch's headers are C++17.
    ## What happens
    The build of an extension ends with "#error C++17 or later compatible compiler is required to use PyTorch", or "You
    need C++17 to compile PyTorch", from `torch/csrc/api/include/torch/all.h` or `c10/util/C++17.h`.
    ## Why
    Since PyTorch 2.1 its headers need C++17. A setup.py or CMakeLists.txt that is older says `-std=c++14` itself, and
    what it says comes after what torch adds; and compilers before gcc 9 may not know C++17 whole.
    ## Example
    ```python
    CUDAExtension(..., extra_compile_args={"cxx": ["-O3", "-std=c++14"]})    # wrong with torch 2.1 and newer
    CUDAExtension(..., extra_compile_args={"cxx": ["-O3", "-std=c++17"]})    # right
    ```
    ## Cure
    Take a release of the package that knows this torch; or write `-std=c++17` for `-std=c++14` in its setup.py
    (`CMAKE_CXX_STANDARD 17` in CMakeLists.txt), for nvcc too, with gcc 9 or newer. Or torch 2.0 and older.
    ## When it is safe
    Where the build leaves the standard to torch, or asks for C++17.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/102082: DeepSpeed's operators with the first torch that needs C++17
    - https://github.com/pytorch/pytorch/issues/103371: CMAKE_CXX_STANDARD 14
    - https://github.com/Karbo123/segmentator/issues/13: an extension built by CMake
    - https://github.com/NVIDIA/FasterTransformer/issues/779: gcc and CMake of an old image
    """

    name = "op-build-cxx17-needed"
    title = Text("The extension is not compiled as C++17, which PyTorch needs", "扩展没有按 PyTorch 要求的 C++17 编译")
    log_words = ("C++17",)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"C\+\+17 or later compatible compiler is required to use PyTorch|You need C\+\+17 to compile PyTorch"
            )
        ),
    )
    yields_to = ("op-build-gcc-refused-by-nvcc",)
    cause = Text(
        "PyTorch's headers need C++17, and the extension is compiled by an older standard: its own build says so, or "
        "the compiler is too old.",
        "PyTorch 的头文件需要 C++17，而扩展按更旧的标准编译：其构建脚本如此指定，或编译器太旧。",
    )
    cures = (
        Text(
            "Take a release of the package that knows this torch, or write -std=c++17 for -std=c++14 in its setup.py "
            "(CMakeLists.txt: CMAKE_CXX_STANDARD 17), with gcc 9 or newer",
            "使用支持该 torch 的版本，或把其 setup.py 中的 -std=c++14 改为 -std=c++17（CMakeLists.txt："
            "CMAKE_CXX_STANDARD "
            "17），并用 gcc 9 或更新",
        ),
        CLEAR,
    )
    confirm = Text(
        "The compiler's command in the log has -std=c++14, or gcc --version is below 9",
        "日志中的编译命令含 -std=c++14，或 gcc --version 低于 9",
    )
