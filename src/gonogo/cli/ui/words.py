"""What the page says, in both languages, by the names that its script and markup know."""

from __future__ import annotations

from gonogo.finding import Text

WORDS = {
    "title": Text("Will it run?", "能不能跑起来？"),
    "before": Text("Before a run", "启动之前"),
    "after": Text("A run that died", "已失败的运行"),
    "reports": Text("Reports", "报告"),
    "no reports": Text("None yet.", "还没有。"),
    "folder": Text("Folder", "目录"),
    "up": Text("up", "上一级"),
    "empty": Text("Nothing here.", "这里没有文件。"),
    "left out": Text(
        "not shown: {count} (links to outside, names that are not valid text, or too many files)",
        "未显示 {count} 项（指向目录之外的链接、不是文本的文件名，或数量过多）",
    ),
    "kind folder": Text("folder", "目录"),
    "kind launch": Text("launch", "启动脚本"),
    "kind log": Text("log", "日志"),
    "kind records": Text("guarded run", "监护运行"),
    "command": Text("Launch command", "要启动的命令"),
    "command hint": Text(
        "Choose a script above, or enter a command. Without either, check reads the whole folder.",
        "在上面选择脚本，或直接填写命令；不填时，检查会读取整个目录。",
    ),
    "gpus": Text("GPUs per node, or instance type", "每节点 GPU，或云实例类型"),
    "nodes": Text("Nodes", "节点数"),
    "host memory": Text("Host memory", "主机内存"),
    "as command": Text("from the command", "取自命令"),
    "more": Text("More", "更多选项"),
    "ranks": Text("Ranks to rehearse", "排练的 rank"),
    "steps": Text("Steps", "步数"),
    "model": Text("Model to plan for", "要规划的模型"),
    "model hint": Text("a folder, or a hub name", "目录，或 hub 上的名称"),
    "seq len": Text("Tokens per sample", "每个样本的 token 数"),
    "tune": Text("Fine-tuning", "训练方式"),
    "task": Text("Task", "训练任务"),
    "teacher": Text("Teacher (gkd)", "教师模型（gkd）"),
    "training changes": Text("Cure may change training results", "修复时允许影响训练结果的改动"),
    "check": Text("Check", "检查"),
    "rehearse": Text("Rehearse", "排练"),
    "plan": Text("Plan", "规划"),
    "cure": Text("Cure", "修复"),
    "diagnose": Text("Diagnose", "诊断"),
    "run": Text("Run", "运行"),
    "compare": Text("Compare", "比较"),
    "compare with": Text("Compare with", "与之比较"),
    "choose another": Text("another rehearsal …", "另一次排练…"),
    "not here": Text(
        "{name} is not in this folder: go to its folder above, or start gonogo ui in its project",
        "{name} 不在此目录中：请在上面进入其所在目录，或在其项目中启动 gonogo ui",
    ),
    "drop": Text(
        "Drop a log anywhere on this page to diagnose it, or a script of this folder to launch it.",
        "把日志拖到页面上即可诊断；把本目录中的脚本拖到页面上即可选择启动。",
    ),
    "check hint": Text("Reads the files. Seconds.", "只读文件，几秒。"),
    "rehearse hint": Text("Runs the program on virtual GPUs. Minutes.", "在虚拟 GPU 上运行程序，几分钟。"),
    "plan hint": Text("Strategies that fit, fastest first.", "放得下的方案，由快到慢。"),
    "cure hint": Text("The smallest change that makes it GO.", "使其变为 GO 的最小改动。"),
    "log": Text("The log", "日志"),
    "log hint": Text(
        "Paste it here, or choose files in the folder above. It stays on this machine.",
        "粘贴到这里，或在上面的目录中选择文件。日志不会离开本机。",
    ),
    "chosen": Text("Chosen", "已选择"),
    "with files": Text("Also read the files of this folder", "同时读取该目录中的文件"),
    "cancel": Text("Cancel", "取消"),
    "cancelled": Text("cancelled", "已取消"),
    "failed": Text("failed", "失败"),
    "running": Text("running", "进行中"),
    "starting": Text("starting", "正在启动"),
    "own tab": Text("Open in its own tab", "在单独的标签页中打开"),
    "whole folder": Text("the whole folder", "整个目录"),
    "pasted": Text("a pasted log", "粘贴的日志"),
    "welcome": Text("Choose what to launch, then an action.", "选择要启动的内容，然后选择操作。"),
    "welcome check": Text(
        "**Check** reads scripts and configs for known failures.",
        "**检查**：阅读脚本与配置，找出已知会导致失败的问题。",
    ),
    "welcome rehearse": Text(
        "**Rehearse** runs the real program at full size on virtual GPUs and finds errors, memory peaks and "
        "diverging ranks.",
        "**排练**：在虚拟 GPU 上按真实规模运行程序，得到其错误、显存与各 rank 的分歧。",
    ),
    "welcome plan": Text(
        "**Plan** compares the strategies that fit your model.", "**规划**：比较放得下该模型的各种方案。"
    ),
    "welcome cure": Text(
        "**Cure** searches for the smallest change that makes it run, and verifies it.",
        "**修复**：寻找能让它跑起来的最小改动，并加以验证。",
    ),
    "gone": Text(
        "gonogo ui has stopped or can't be reached. Start it again where you started it.",
        "gonogo ui 已结束或无法访问，请在原处重新启动。",
    ),
    "report": Text("Report", "报告"),
}
"""``**`` stands around what is set strong."""
