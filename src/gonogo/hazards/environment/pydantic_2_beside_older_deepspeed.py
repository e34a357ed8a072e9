from gonogo.hazards.version_rule import UnfitVersions
from gonogo.hazards.rule import Text


class Pydantic2BesideOlderDeepspeed(UnfitVersions):
    """pydantic 2 beside a DeepSpeed whose config is written for pydantic 1.
    ## What happens
    `import deepspeed` ends in pydantic: "PydanticUserError", "`Config` ... has been removed", or "A non-annotated
    attribute was detected" in `deepspeed/runtime/config_utils.py`.
    ## Why
    DeepSpeed up to 0.9.4 uses pydantic 1 and names no upper limit for it; pydantic 2 came in June 2023 and changed
    its API. 0.9.5 and newer pin it or use either.
    ## Example
    ```text
    deepspeed==0.9.2
    pydantic==2.5.3    # wrong
    pydantic==1.10.13    # right
    ```
    ## Cure
    Pin pydantic<2, or take a newer DeepSpeed.
    ## When it is safe
    With DeepSpeed 0.9.5 or newer.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/3280: DeepSpeed and pydantic 2
    - https://github.com/OptimalScale/LMFlow/issues/544: the import that fails in a training project
    """

    name = "pydantic-2-beside-older-deepspeed"
    title = Text("This DeepSpeed needs pydantic 1", "该 DeepSpeed 需要 pydantic 1")
    versions = (("pydantic", ">=2"), ("deepspeed", "<=0.9.4"))
    install = ("pydantic", "<2")
    cause = Text(
        "{deepspeed} has config models for pydantic 1, and {pydantic} is beside it: importing DeepSpeed fails.",
        "{deepspeed} 的配置模型是为 pydantic 1 编写的，而一同安装的是 {pydantic}：导入 DeepSpeed 时失败。",
    )
    cure = (Text('Or pip install "deepspeed>=0.9.5"', '或执行 pip install "deepspeed>=0.9.5"'),)
    label = ("deepspeed", Text("written for pydantic 1", "为 pydantic 1 编写"))
