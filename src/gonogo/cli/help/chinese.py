"""Chinese help texts of arguments and options, by their English text."""

HELP_ZH = {
    "Files and folders; after --, the launch command.": "文件和目录；-- 之后是启动命令。",
    "Package versions of the run: requirements, pip freeze, a lock file, JSON, or `gonogo env` output.": (
        "运行所用的软件包版本：requirements、pip freeze、锁文件、JSON 或 `gonogo env` 的输出。"
    ),
    "Check only these hazards (glob). Repeatable.": "只检查这些隐患（glob）。可重复。",
    "Skip these hazards (glob). Repeatable.": "不检查这些隐患（glob）。可重复。",
    "Exit 1 on errors of at least this certainty. Default: certain.": "错误至少这样确定时退出码为 1。默认：certain。",
    "Show what --fix would change, without changing it.": "显示 --fix 会做的修改，但不修改。",
    "Apply the safe fixes, then report what remains.": "应用安全的修复，再报告其余问题。",
    "With --fix or --diff: also fixes that change the run's behaviour.": (
        "与 --fix 或 --diff 连用：包括会改变行为的修复。"
    ),
    "Count the findings per hazard.": "按隐患统计数量。",
    "Ignore PATHS of other file types instead of failing (for commit hooks).": (
        "忽略其他类型的文件而不报错（供提交钩子使用）。"
    ),
    "Format of the report.": "报告的格式。",
    "Write the report to FILE instead of stdout.": "把报告写入 FILE，而不是标准输出。",
    "Also open the report in the browser (the --output file, or a temporary page).": (
        "同时在浏览器中打开报告（--output 的文件，或临时页面）。"
    ),
    "Language of the report. Default: from the locale. 报告语言": "报告语言。默认取自 locale。",
    "Describe the environment in this file instead: pip freeze, a lock file, a Dockerfile, `gonogo env` …": (
        "改为描述此文件中的环境：pip freeze、锁文件、Dockerfile、`gonogo env` …"
    ),
    "A folder with config.json, or a hub name; or, after --, a command that trains the model.": (
        "含 config.json 的目录，或 hub 上的名称；或在 -- 之后给出训练该模型的命令。"
    ),
    "GPUs of a node, e.g. 8xA100-80G, or an instance type. Default: 8xH100-80G.": (
        "一个节点的 GPU，例如 8xA100-80G，或实例类型。默认：8xH100-80G。"
    ),
    "Rehearse the run with this setting changed, in a copy: micro-batch, seq-len, accumulation, stage, "
    "offload-optimizer or offload-parameters. Repeatable.": (
        "在副本中改变此设置后排练：micro-batch、seq-len、accumulation、stage、offload-optimizer 或 "
        "offload-parameters。可重复。"
    ),
    "Also rehearse the run with these settings changed, and show both side by side. Repeatable.": (
        "再用改变后的这些设置排练一次，并排显示结果。可重复。"
    ),
    "Number of nodes. Default: 1, or from COMMAND.": "节点数。默认：1，或取自命令。",
    "Host memory per node, e.g. 1T or 512G.": "每个节点的主机内存，例如 1T 或 512G。",
    "NVMe per node for offloading, e.g. 4T.": "每个节点可用于卸载的 NVMe，例如 4T。",
    "Tokens per sample. Default: 4096.": "每个样本的 token 数。默认：4096。",
    "Full fine-tuning or adapters. Default: full.": "全量微调或适配器。默认：full。",
    "LoRA rank. Default: 16.": "LoRA 的 rank。默认：16。",
    "Samples per optimizer step, over all GPUs. Default: 64.": "每次参数更新的样本数（所有 GPU 合计）。默认：64。",
    "Inter-node bandwidth per GPU in Gbit/s. Default: 200.": "每张 GPU 的节点间带宽，Gbit/s。默认：200。",
    "Training task (TRL trainer). Default: sft.": "训练任务（TRL 的 trainer）。默认：sft。",
    "With --task: tokens per prompt. Default: 512.": "与 --task 连用：每个 prompt 的 token 数。默认：512。",
    "With --task: maximum tokens per completion. Default: 1024.": (
        "与 --task 连用：每个回答的最多 token 数。默认：1024。"
    ),
    "grpo, rloo: completions per prompt. Default: 8.": "grpo、rloo：每个 prompt 的回答数。默认：8。",
    "KL coefficient (beta); 0: no reference model. Default: TRL's.": (
        "KL 系数（beta）；0：没有参考模型。默认：TRL 的默认值。"
    ),
    "grpo, rloo: where vLLM runs. Default: any.": "grpo、rloo：vLLM 在哪里运行。默认：不限。",
    "grpo, rloo: a reward model. Default: a reward function.": "grpo、rloo：奖励模型。默认：奖励函数。",
    "gkd: the teacher model.": "gkd：教师模型。",
    "Find the largest value that fits; for gpus, the fewest.": "求放得下的最大值；对 gpus 求最少张数。",
    "Write the DeepSpeed config, script and launch commands of the best strategy to this folder.": (
        "把最优方案的 DeepSpeed 配置、脚本和启动命令写入此目录。"
    ),
    "Write a picture of each GPU's memory breakdown to this file.": "把各方案每张 GPU 的显存构成画成图，写入此文件。",
    "Your hourly prices of GPUs or instances (YAML, JSON), to estimate hours and cost.": (
        "GPU 或实例的每小时价格（YAML、JSON），用于估计时长和费用。"
    ),
    "With --price: tokens to train on, e.g. 1.5B. Default: 1B.": (
        "与 --price 连用：训练的 token 总数，例如 1.5B。默认：1B。"
    ),
    "Give up on a rehearsal after this time.": "一次排练超过此时间就放弃。",
    "The launch command, after --.": "启动命令，写在 -- 之后。",
    "GPUs of a node, e.g. 8xH100-80G, or an instance type: p5.48xlarge. Default: as many H100-80G as COMMAND uses.": (
        "一个节点的 GPU，例如 8xH100-80G，或实例类型：p5.48xlarge。默认：H100-80G，张数取自命令。"
    ),
    "Number of nodes. Default: from COMMAND.": "节点数。默认取自命令。",
    "Which ranks to run; auto: rank 0, and the last one too where the files let ranks differ, or one of each role.": (
        "运行哪些 rank；auto：rank 0，文件表明各 rank 可能不同时再加最后一个，或每种角色一个。"
    ),
    "Optimizer steps to run.": "运行多少次参数更新。",
    "Stop a program that takes longer.": "程序超过此时间就停止。",
    "Rehearse in the environment described by FILE: requirements, a lock file, pip freeze, a Dockerfile …; none: the "
    "installed packages; auto: the environment that the project's files ask for, once you agree. Default: auto.": (
        "在 FILE 描述的环境中排练：requirements、锁文件、pip freeze、Dockerfile …；none：已安装的软件包；auto：项目文件"
        "所要求的环境（先征得同意）。默认：auto。"
    ),
    "With --environment: resolve unpinned versions to the releases of this day (2023-11-02). Default: the last commit "
    "of FILE's repository.": (
        "与 --environment 连用：未固定的版本取这一天的发布版（2023-11-02）。默认：FILE 所在仓库最后一次提交的日期。"
    ),
    "Use this version of a package. Repeatable.": "使用某个软件包的这个版本。可重复。",
    "Install what the project's files require into gonogo's own cache without asking.": (
        "不询问，直接把项目文件要求的软件包装入 gonogo 自己的缓存。"
    ),
    "First generate what the launch opens and is not here: models without weights, tokenizers, data.": (
        "先生成启动命令要打开而本机没有的内容：不含权重的模型、分词器、数据。"
    ),
    "Also pass the variable NAME to the program (secrets as placeholders), or set it to VALUE. Repeatable.": (
        "也把环境变量 NAME 传给程序（机密用占位值），或把它设为 VALUE。可重复。"
    ),
    "Keep the raw records in DIR.": "把原始记录保存在 DIR。",
    "Write a memory snapshot for PyTorch's memory_viz to this file.": "写出供 PyTorch memory_viz 查看的内存快照。",
    "Write a trace for Perfetto or chrome://tracing to this file.": (
        "写出供 Perfetto 或 chrome://tracing 查看的时间线。"
    ),
    "Write the ranks' collectives as flight recorder dumps for PyTorch's torchfrtrace to this folder.": (
        "把各 rank 的集合通信写成供 PyTorch torchfrtrace 读取的 flight recorder 转储。"
    ),
    "Run every micro-batch of gradient accumulation and every token of generate. Default: those that would "
    "repeat one before are counted, not run.": (
        "逐个运行梯度累积的每个 micro-batch 和 generate 的每个 token。默认：与之前相同的只计数、不运行。"
    ),
    "Run without confinement: programs can reach your files and the network. Noted in each report.": (
        "不加限制地运行：程序能访问你的文件和网络。每份报告都会注明。"
    ),
    "Instead of COMMAND: train this model on a synthetic batch; a folder, config.json, or a hub name.": (
        "代替命令：用合成批次训练此模型；目录、config.json 或 hub 上的名称。"
    ),
    "With --synthetic-batch: the DeepSpeed config. Without it: DDP.": (
        "与 --synthetic-batch 连用：DeepSpeed 配置。不给则用 DDP。"
    ),
    "With --synthetic-batch: tokens per sample. Default: 512.": (
        "与 --synthetic-batch 连用：每个样本的 token 数。默认：512。"
    ),
    "With --synthetic-batch: samples per GPU. Default: 1.": "与 --synthetic-batch 连用：每张 GPU 的样本数。默认：1。",
    "With --synthetic-batch: enable gradient checkpointing.": "与 --synthetic-batch 连用：启用梯度检查点。",
    "Also save, kill and resume the run, or convert, merge and load its checkpoint, and say what is lost: "
    "--life train,save,kill,resume,merge,serve.": (
        "同时排练保存、终止和恢复，或转换、合并和加载检查点，并指出丢失了什么："
        "--life train,save,kill,resume,merge,serve。"
    ),
    "With --life: kill the run between the writes of its save, too, and say what each resume comes to.": (
        "与 --life 合用：在保存的各次写入之间也终止运行，并说明每次恢复的结果。"
    ),
    "With --life convert: the converter's command, as one quoted argument.": (
        "与 --life convert 合用：转换检查点的命令，作为一个带引号的参数。"
    ),
    "With --life merge: what merges the adapter, as one quoted argument. Default: PEFT's merge_and_unload.": (
        "与 --life merge 合用：合并适配器的命令，作为一个带引号的参数。默认：PEFT 的 merge_and_unload。"
    ),
    "With --life serve: what loads the result and runs it once, as one quoted argument. Default: transformers.": (
        "与 --life serve 合用：加载结果并运行一次的命令，作为一个带引号的参数。默认：transformers。"
    ),
    "With --life: the machine on which the run is resumed. Default: the same.": (
        "与 --life 合用：在哪种机器上恢复训练。默认：同一种。"
    ),
    "With --life: what the command that resumes has besides, as one quoted argument: "
    '--resume-with "--resume_from_checkpoint out/checkpoint-2". An option that the command has is replaced.': (
        "与 --life 合用：恢复训练的命令另外带的参数，作为一个带引号的参数："
        '--resume-with "--resume_from_checkpoint out/checkpoint-2"。命令中已有的选项会被替换。'
    ),
    "Run the ranks on this Ray cluster. Default: on this machine.": "在此 Ray 集群上运行各 rank。默认：在本机。",
    "Compare with an earlier report (JSON): exit 1 if the verdict got worse or a memory peak grew.": (
        "与之前的报告（JSON）比较：结论变差或内存峰值增长时退出码为 1。"
    ),
    "With --against: how much a memory peak may grow, in percent.": "与 --against 连用：内存峰值最多可增长百分之几。",
    "The earlier report of gonogo rehearse (JSON or HTML).": "gonogo rehearse 之前的报告（JSON 或 HTML）。",
    "The later report (JSON or HTML).": "之后的报告（JSON 或 HTML）。",
    "How much a memory peak may grow, in percent.": "内存峰值最多可增长百分之几。",
    "Only list; don't write or run anything.": "只列出；不写入也不运行任何内容。",
    "Rows per generated data set.": "每个生成的数据集的行数。",
    "Tokens per generated row. Default: COMMAND's maximum length.": "每个生成的行的 token 数。默认：命令中的最大长度。",
    "The published model to use for PATH, or for all unknown models; without COMMAND, only generate this model. "
    "Repeatable.": "代替 PATH（或所有未知模型）的公开模型；不给命令时只生成此模型。可重复。",
    "Only read the files; don't run the program up to its first batch.": "只读文件；不把程序运行到第一个批次。",
    "Give up on that run after this time.": "该次运行超过此时间就放弃。",
    "Format of the list.": "清单的格式。",
    "Logs, folders of logs (all ranks), or - for standard input; after --, the command that was launched.": (
        "日志、日志目录（所有 rank），或 - 表示标准输入；-- 之后是当时的启动命令。"
    ),
    "Folder with the run's files, checked as by gonogo check.": "运行所用文件的目录，同 gonogo check 一样检查。",
    "The run's DeepSpeed config (JSON).": "运行所用的 DeepSpeed 配置（JSON）。",
    "The command or shell script that launched the run.": "启动该运行的命令或 shell 脚本。",
    "The training script.": "训练脚本。",
    "Package versions of the run: requirements, pip freeze, or JSON.": (
        "运行所用的软件包版本：requirements、pip freeze 或 JSON。"
    ),
    "The package to bisect.": "要二分的软件包。",
    "A release that works; older or newer than --bad.": "能跑的版本；可比 --bad 旧或新。",
    "A release that fails.": "失败的版本。",
    "Give up on a release after this time.": "一个版本超过此时间就放弃。",
    "Use this version of another package. Repeatable.": "使用另一个软件包的这个版本。可重复。",
    "Keep the raw records in DIR, one folder per release.": "把原始记录保存在 DIR，每个版本一个目录。",
    "Which ranks to run. Default: rank 0 while searching, then a sample of all ranks to verify.": (
        "运行哪些 rank。默认：查找时 rank 0，最后用所有 rank 的抽样验证。"
    ),
    "Start no new rehearsal after this time.": "超过此时间不再开始新的排练。",
    "The run's complete environment. Default: the installed packages, overlaid with what the launch's requirements "
    "file pins.": "运行的完整环境。默认：已安装的软件包，再叠加启动所用 requirements 文件固定的版本。",
    "Allow changes that affect training results: global batch, learning rate, precision, sequence length.": (
        "允许影响训练结果的改动：全局 batch、学习率、精度、序列长度。"
    ),
    "File to write the patch to.": "写出补丁的文件。",
    "Apply the patch to the files, all or none.": "把补丁应用到文件：全部应用或全不应用。",
    "Folder for the records; with several nodes, on a shared file system. Default: gonogo-runs/TIME-PID.": (
        "保存记录的目录；多机时须在共享文件系统上。默认：gonogo-runs/时间-PID。"
    ),
    "Check the command's files first.": "先检查命令用到的文件。",
    "Launch even if the check says NO-GO.": "即使检查结果是 NO-GO 也启动。",
    "Report a hang after this long without progress.": "这么久没有进展就报告卡住。",
    "How long ranks wait for each other to be compared before the first step.": (
        "第一步之前，各 rank 为相互核对最多等待多久。"
    ),
    "Find the first module whose output or gradient is NaN or infinite. Slows each step.": (
        "找出第一个输出或梯度为 NaN 或无穷的模块。会拖慢每一步。"
    ),
    "Log the report to W&B, MLflow, TensorBoard or SwanLab if the training uses them.": (
        "训练使用 W&B、MLflow、TensorBoard 或 SwanLab 时，把报告也记录到那里。"
    ),
    "Launch nothing: write the report of the records in DIR.": "不启动：为 DIR 中的记录写报告。",
    "Write the report to FILE instead of stderr.": "把报告写入 FILE，而不是标准错误。",
    "With --report: also open the report in the browser.": "与 --report 连用：同时在浏览器中打开报告。",
    "Name of a hazard, as in reports and `gonogo hazards`.": "隐患的名称，见报告和 `gonogo hazards`。",
    "Output format.": "输出格式。",
    "Only hazards of this theme: device, zero3 ...": "只列出此主题的隐患：device、zero3 …",
    "Only hazards that show up there.": "只列出在此处显现的隐患。",
    "Start a new hazard in a checkout: its page and a failing test case.": (
        "在源码目录中新建隐患：说明页和会失败的用例。"
    ),
    "With --new: also a Python class for what the page can't decide.": (
        "与 --new 连用：再加一个 Python 类，处理页面不能判断的部分。"
    ),
    "Only names that contain this: H100, p5, ecs.gn7e, Azure.": "只列出含有此文字的名称：H100、p5、ecs.gn7e、Azure。",
    "A folder to work in; nothing outside is read. Repeatable. Default: the current one.": (
        "可以使用的目录；不读取其外的文件。可重复。默认：当前目录。"
    ),
    "Streamable HTTP on 127.0.0.1:PORT/mcp, instead of stdio.": (
        "在 127.0.0.1:PORT/mcp 上用 Streamable HTTP，而不是 stdio。"
    ),
    "Disable rehearse, cure and prepare, which run programs that a client names.": (
        "停用会运行客户端所指定程序的 rehearse、cure 和 prepare。"
    ),
    "Arguments for sbatch.": "传给 sbatch 的参数。",
    "Submit even if the check says NO-GO.": "即使检查结果是 NO-GO 也提交。",
    "deepspeed: DeepSpeed configs; report: the output of --format json.": (
        "deepspeed：DeepSpeed 配置；report：--format json 的输出。"
    ),
    "DeepSpeed version, e.g. 0.16.9. Default: the newest known.": "DeepSpeed 版本，例如 0.16.9。默认：已知的最新版。",
    "Use stdin and stdout (the default; accepted for editors that pass it).": (
        "使用标准输入输出（默认如此；供会传此选项的编辑器使用）。"
    ),
    "Install the skill, or print it.": "安装技能，或打印它。",
    "The agent to install it for, or a skills folder.": "为哪个编程助手安装，或技能目录。",
    "Install for all projects (in the home directory, not in this folder).": (
        "为所有项目安装（在主目录，而不是此目录）。"
    ),
    "Overwrite a file that was changed.": "覆盖已被改动的文件。",
    "Folder to serve; nothing outside is read. Default: the current folder.": (
        "要使用的目录；不读取其外的文件。默认：当前目录。"
    ),
    "Port on 127.0.0.1. Default: a free one.": "127.0.0.1 上的端口。默认：任一空闲端口。",
    "Print the address without opening a browser.": "只打印地址，不打开浏览器。",
    "Also fetch other releases of the failing package from the index, and say in which a name, an "
    "argument or the line that raised came or went. Nothing of them is run.": (
        "同时从软件源获取出错软件包的其他版本，说明名称、参数或抛出异常的那一行在哪个版本出现或消失。其中的代"
        "码不会运行。"
    ),
    "Also let this language model read the evidence (--format pack), and check what it says. It shows "
    "what will be sent and asks, the first time for each server.": (
        "同时让该语言模型阅读证据（--format pack），并核对它的说法。每个服务器第一次使用时，先显示将要发送的"
        "内容并询问。"
    ),
    "Fetch other releases of the failing package from the index, compare them by symbol, and try first "
    "where what failed changed. Nothing of the archives is run.": (
        "从软件源获取出错软件包的其他版本，按符号比较，先试出错之处有变化的版本。归档中的代码不会运行。"
    ),
    "Format of the report; pack: the evidence in at most 6,000 tokens, for a person, a coding agent or a "
    "language model, without anything private.": (
        "报告的格式；pack：至多 6,000 个 token 的证据，供人、编程智能体或语言模型阅读，不含隐私信息。"
    ),
    "Give up on the model's answer after this time.": "超过这个时间就不再等待模型的回答。",
    "The server of --reader, of any kind that speaks OpenAI's protocol: http://127.0.0.1:8000/v1. "
    "Default: OPENAI_BASE_URL, else OpenAI's own.": (
        "--reader 的服务器，支持 OpenAI 协议即可：http://127.0.0.1:8000/v1。默认：OPENAI_BASE_URL，"
        "否则为 OpenAI 的服务器。"
    ),
    "With --format json: include the evidence of --format pack.": "与 --format json 连用：包含 --format pack 的证据。",
    "With --reader: send the evidence without asking.": "与 --reader 连用：不询问，直接发送证据。",
}
