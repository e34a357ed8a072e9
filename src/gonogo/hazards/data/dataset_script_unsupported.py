from gonogo.hazards.facts.installed import describe_package, span_of
from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class DatasetScriptUnsupported(LoggedHazard):
    """The dataset is loaded by a Python script of its own, which datasets 4 and newer no longer run.
    ## What happens
    "RuntimeError: Dataset scripts are no longer supported, but found NAME.py", from `load_dataset`; with
    `trust_remote_code=True` as well.
    ## Why
    datasets 4.0 (July 2025) removed loading scripts: a dataset has to be files (Parquet, JSON, CSV), or a folder of
    them. A repository that still has NAME.py beside its README is refused, and so is the path of a local script.
    ## Example
    ```text
    datasets==4.0.0    # wrong for a dataset with a loading script
    datasets==3.6.0    # right: the last release that runs it (with trust_remote_code=True)
    ```
    ## Cure
    Take the dataset's files: many repositories have a branch converted to Parquet
    (`load_dataset(NAME, revision="refs/convert/parquet")`), or a newer repository of the same data. Or pin datasets
    below 4, and give `trust_remote_code=True`.
    ## When it is safe
    Where the repository has data files only, or datasets is older than 4.
    ## Sources
    - https://github.com/huggingface/datasets/issues/7693: the error; 3.6.0 cures it
    - https://github.com/LiveCodeBench/LiveCodeBench/issues/107: on the day that 4.0.0 came
    - https://github.com/reazon-research/ReazonSpeech/issues/64: the frames
    """

    name = "dataset-script-unsupported"
    title = Text(
        "The dataset needs a loading script, which datasets 4 does not run", "数据集依赖加载脚本，datasets 4 不再运行"
    )
    log_words = ("scripts are no longer supported",)
    anywhere = True
    signs = (Sign(Pattern(r"Dataset scripts are no longer supported, but found (?P<file>\S+\.py)"), Certainty.CERTAIN),)
    cause = Text(
        "The dataset is loaded by {file}, and this datasets (4 or newer) does not run loading scripts.",
        "该数据集由 {file} 加载，而当前的 datasets（4 或更新）不再运行加载脚本。",
    )
    cures = (
        Text(
            'Load its files instead: load_dataset(NAME, revision="refs/convert/parquet"), or data_files=…',
            '改为加载数据文件：load_dataset(NAME, revision="refs/convert/parquet")，或 data_files=…',
        ),
        Text(
            "Or pip install 'datasets<4', and pass trust_remote_code=True",
            "或 pip install 'datasets<4'，并传入 trust_remote_code=True",
        ),
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """``load_dataset`` is given a Python file, or leave to run one, under datasets 4."""
        if b"load_dataset" not in script.source.data or run.environment.within("datasets", ">=4") is not True:
            return
        for call in script.calls("datasets.load_dataset"):
            path = call.argument(0) if call.node.args else call.keyword("path")
            trusted = call.keyword("trust_remote_code")
            is_file = path.known and str(path.value).endswith(".py")
            if not is_file and trusted.truth is not True:
                continue
            if not is_file and path.known and str(path.value) in _OF_FILES:
                continue  # one of datasets' own readers: nothing is trusted
            yield self.finding(
                (_FILE if is_file else _TRUSTED).format(
                    installed=describe_package(run.environment, "datasets"), path=path.value if path.known else "?"
                ),
                certainty=Certainty.CERTAIN if is_file else Certainty.POSSIBLE,
                cure=self.cures,
                spans=(path.span() if is_file else trusted.span(), span_of(run.environment, "datasets")),
                confirm=()
                if is_file
                else Text("The dataset's repository has a .py file", "该数据集的仓库中有 .py 文件"),
            )


_OF_FILES = ("json", "csv", "parquet", "text", "arrow", "imagefolder", "audiofolder", "webdataset")
_FILE = Text(
    "load_dataset is given the script {path}, and {installed} does not run loading scripts.",
    "load_dataset 得到脚本 {path}，而 {installed} 不再运行加载脚本。",
)
_TRUSTED = Text(
    "trust_remote_code lets a dataset's script run, and {installed} runs none: a dataset that needs one is refused.",
    "trust_remote_code 用于允许数据集脚本运行，而 {installed} 不再运行脚本：依赖脚本的数据集会被拒绝。",
)
