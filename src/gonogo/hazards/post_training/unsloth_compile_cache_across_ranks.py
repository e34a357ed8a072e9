from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class UnslothCompileCacheAcrossRanks(LoggedHazard):
    """unsloth writes patched trainers into `unsloth_compiled_cache` and imports them, on several ranks at once.
    ## What happens
    "module 'UnslothPPOTrainer' has no attribute 'UnslothPPOTrainer'", SyntaxError, IndentationError, FileNotFoundError
    or ImportError in `unsloth_compiled_cache/…`, on other trainers at each attempt.
    ## Why
    Each rank writes the same files below the working directory while others read them half-written. A cache that was
    left over from another release gives the same.
    ## Example
    ```sh
    torchrun --nproc_per_node 4 sft_unsloth.py                                           # wrong with an empty cache
    python sft_unsloth.py --max_steps 1 && torchrun --nproc_per_node 4 sft_unsloth.py    # right
    ```
    ## Cure
    Delete `unsloth_compiled_cache` and let one process build it first (run once on one GPU), or give each rank its own
    (`UNSLOTH_COMPILE_LOCATION=/tmp/unsloth_$LOCAL_RANK`); newer releases of unsloth_zoo write it on one rank.
    ## When it is safe
    With one process, or a cache that is whole before the ranks start.
    ## Sources
    - https://github.com/unslothai/unsloth/issues/3031: torchrun with 8 ranks: no attribute UnslothPPOTrainer
    - https://github.com/unslothai/unsloth/issues/2435: random missing trainers, from bad cache folders
    - https://github.com/OEvortex/unsloth/issues/8: four ranks that import at once
    """

    name = "unsloth-compile-cache-across-ranks"
    title = Text("Ranks write and read unsloth's compiled cache at once", "多个 rank 同时读写 unsloth 的编译缓存")

    log_words = ("unsloth_compiled_cache", "has no attribute 'Unsloth", "Unsloth")
    traces = ("IndentationError: unexpected indent",)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"module 'Unsloth\w+' has no attribute 'Unsloth"
                r"|cannot import name '\w+' from (?:partially initialized module )?'Unsloth"
            )
        ),
        Sign(
            types=(
                "SyntaxError",
                "IndentationError",
                "FileNotFoundError",
                "ImportError",
                "ModuleNotFoundError",
                "NameError",
                "OSError",
                "JSONDecodeError",
                "FileExistsError",
            ),
            frames=(("unsloth_compiled_cache",),),
        ),
        # A patched trainer may call what lacks an attribute for another reason.
        Sign(
            types=("AttributeError",),
            frames=(("unsloth_compiled_cache",),),
            innermost=("unsloth_compiled_cache",),
            lines=False,
        ),
        Sign(
            Pattern(
                r"No module named 'Unsloth\w+Trainer'|(?:No such file|File exists).*unsloth_compiled_cache"
                r"|unsloth_compiled_cache.*(?:SyntaxError|No such file)|Unsloth: .*(?:compiled cache"
                r"|Direct module loading failed)"
            )
        ),
        Sign(
            types=("",),
            frames=(
                ("_patch_trl_rl_trainers", "patch_trl_rl_trainers", "create_new_function", "PatchFastRL"),
                ("unsloth",),
            ),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "A file of unsloth's compiled cache was read while another rank wrote it, or is left over from "
        "another release.",
        "读取 unsloth 编译缓存中的文件时，另一个 rank 正在写入，或该文件是其他版本残留的。",
    )
    cures = (
        Text(
            "rm -rf unsloth_compiled_cache, run once with one process, then with all; or "
            "UNSLOTH_COMPILE_LOCATION=/tmp/unsloth_$LOCAL_RANK per rank",
            "rm -rf unsloth_compiled_cache，先用一个进程运行一次，再全部启动；或为每个 rank 设 "
            "UNSLOTH_COMPILE_LOCATION=/tmp/unsloth_$LOCAL_RANK",
        ),
        Text("Upgrade unsloth and unsloth_zoo together", "一起升级 unsloth 与 unsloth_zoo"),
    )
    confirm = (
        Text("The same script starts with one process and an empty cache", "同一脚本在单进程与空缓存下可以启动"),
    )
