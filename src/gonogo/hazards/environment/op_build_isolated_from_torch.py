from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_NO_TORCH = Pattern(r"No module named '(?P<asked>torch|packaging|wheel|psutil)'")
_BUILDING = Pattern(
    r"Getting requirements to build wheel|subprocess-exited-with-error|metadata-generation-failed|error originates "
    r"from a subprocess|get_requires_for_build_wheel|setup\.py (?:egg_info|bdist_wheel)|Failed to build|Preparing "
    r"metadata|build_meta\.py|pip-build-env|pip-install-|Building wheels? for|build backend returned"
)


class OpBuildIsolatedFromTorch(LoggedHazard):
    """A package is compiled against torch, and pip builds it where there is no torch.
    ## What happens
    `pip install flash-attn` (apex, transformer_engine, mamba-ssm, older deepspeed and xformers) ends in
    "ModuleNotFoundError: No module named 'torch'", below "Getting requirements to build wheel did not run
    successfully", though torch is installed.
    ## Why
    pip builds in an environment of its own, with what the package's pyproject.toml asks for; these packages need the
    torch that is installed, and do not (and can't) ask for it. `uv pip install` and poetry do the same.
    ## Example
    ```sh
    pip install flash-attn                                                    # wrong
    pip install packaging ninja psutil wheel setuptools
    pip install flash-attn --no-build-isolation                               # right, after torch
    ```
    ## Cure
    Install torch first, then the package with `--no-build-isolation`, and what its setup.py imports: packaging, ninja,
    psutil, wheel, setuptools. In one requirements.txt they can't stand together: install in two steps.
    ## When it is safe
    With a wheel that is already compiled for this torch, CUDA and Python.
    ## Sources
    - https://github.com/Dao-AILab/flash-attention/issues/246: no module named torch, then packaging; the option
    - https://github.com/Dao-AILab/flash-attention/issues/420: the same, with what else is needed
    - https://pip.pypa.io/en/stable/reference/build-system/: build isolation, and how to switch it off
    """

    name = "op-build-isolated-from-torch"
    title = Text("pip compiles the package where there is no torch", "pip 在没有 torch 的环境中编译该包")
    log_words = ("No module named 'torch'", "No module named 'packaging'", "No module named 'psutil'", "to build wheel")
    anywhere = True
    signs = (Sign(_NO_TORCH, beside=_BUILDING),)
    cause = Text(
        "While pip was building a package, its setup imported {asked}, which is not there: pip builds in an isolated "
        "environment.",
        "pip 构建某个包时，其 setup 导入 {asked} 失败：pip 在隔离的环境中构建。",
    )
    cures = (
        Text(
            "Install torch first, then: pip install packaging ninja psutil wheel setuptools && pip install PACKAGE "
            "--no-build-isolation",
            "先安装 torch，然后：pip install packaging ninja psutil wheel setuptools && pip install 包名 "
            "--no-build-isolation",
        ),
        Text(
            "Or install a wheel that is already compiled for this torch, CUDA and Python",
            "或安装已为该 torch、CUDA 与 Python 编译好的 wheel",
        ),
    )
    confirm = Text(
        'python -c "import torch" works in the same environment', '在同一环境中 python -c "import torch" 可用'
    )
