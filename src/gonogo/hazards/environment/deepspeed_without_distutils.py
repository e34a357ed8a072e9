from gonogo.evidence.environment.version_range import parse_version
from gonogo.hazards.facts.installed import certainty_of_versions, describe_package, from_file, listed, span_of
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Refusal, Run, Text


class DeepspeedWithoutDistutils(Hazard):
    """An older DeepSpeed on Python 3.12 without setuptools: distutils is gone.
    ## What happens
    `import deepspeed` ends with "ModuleNotFoundError: No module named 'distutils'", raised in
    `op_builder/builder.py`.
    ## Why
    Python 3.12 removed distutils. setuptools brings a copy, but virtual environments of Python 3.12 no longer begin
    with setuptools, nor do uv's. DeepSpeed up to 0.18.3 imports distutils when it is itself imported, and does not
    ask for setuptools.
    ## Example
    ```sh
    uv venv --python 3.12 && uv pip install deepspeed==0.15.4    # wrong: no setuptools
    uv venv --python 3.12 && uv pip install deepspeed==0.15.4 setuptools    # right
    ```
    ## Cure
    pip install setuptools, or a DeepSpeed that looks for it only when it compiles.
    ## When it is safe
    With setuptools installed, or Python 3.11.
    ## Sources
    - https://docs.python.org/3/whatsnew/3.12.html#distutils: distutils is removed; setuptools is no longer
      preinstalled
    - https://github.com/deepspeedai/DeepSpeed/blob/v0.18.3/op_builder/builder.py: the imports at the top of the file
    - https://github.com/pypa/setuptools/issues/4002: Python 3.12 does not have distutils
    """

    name = "deepspeed-without-distutils"
    title = Text(
        "DeepSpeed imports distutils, which this Python does not have", "DeepSpeed 要导入 distutils，而该 Python 中没有"
    )
    refusal = Refusal(Pattern(r"No module named 'distutils'"), Certainty.POSSIBLE)

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Python 3.12, DeepSpeed up to 0.18.3, and a complete listing without setuptools."""
        python = parse_version(environment.python.string or "")
        if python is None or python.release[:2] < (3, 12) or not listed(environment):
            return
        if environment.has("setuptools") or not environment.within("deepspeed", "<=0.18.3"):
            return
        sure = from_file(environment, "deepspeed")
        yield self.finding(
            Text(
                "{deepspeed} imports distutils, which Python {python} does not have, and setuptools, which brings it, "
                "is not installed.",
                "{deepspeed} 要导入 distutils，Python {python} 中没有它，而带有它的 setuptools 没有安装。",
            ).format(deepspeed=describe_package(environment, "deepspeed"), python=python),
            certainty=certainty_of_versions(environment, run, "deepspeed") if sure else Certainty.POSSIBLE,
            cure=(
                Text("pip install setuptools", "执行 pip install setuptools"),
                Text("Or a newer DeepSpeed, or Python 3.11", "或使用更新的 DeepSpeed，或 Python 3.11"),
            ),
            spans=(span_of(environment, "deepspeed"), environment.python.span()),
        )
