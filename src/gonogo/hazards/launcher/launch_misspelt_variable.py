from gonogo.hazards.facts.launch_facts import variable_name_place
from gonogo.hazards.facts.shell_lines import is_shell_script
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, translated


def _invert_spellings(spellings_by_name: dict[str, str]) -> dict[str, str]:
    return {spelling: name for name, spellings in spellings_by_name.items() for spelling in spellings.split()}


# Misspellings in public scripts, by the intended name. No program reads any of them.
_CORRECT_NAMES = _invert_spellings(
    {
        "CUDA_VISIBLE_DEVICES": (
            "CUDA_VISIBLE_DEVICE CUDA_VISIBLE_DEVICS CUDA_VISIBLE_DEIVCES CUDA_VISIBLE_DEVCIES CUDA_VISIABLE_DEVICES "
            "CUDA_VISIBILE_DEVICES CUDA_VISBLE_DEVICES CUDA_VISIBLES_DEVICES CUDA_VISABLE_DEVICES "
            "CUDA_VISIBLE_DEVICES_ CUDA_DEVICES_VISIBLE CUDE_VISIBLE_DEVICES VISIBLE_CUDA_DEVICES"
        ),
        "ASCEND_RT_VISIBLE_DEVICES": "ASCEND_VISIBLE_DEVICE ASCEND_RT_VISIBLE_DEVICE",
        "NCCL_SOCKET_IFNAME": (
            "NCCL_SOCKET_IFNAMES NCCL_SOCKET_IFNAMEE NCCL_SOCKET_INAME NCCL_SOCKET_NAME NCCL_SOCKT_IFNAME NCCL_IFNAME"
        ),
        "GLOO_SOCKET_IFNAME": "GLOO_SOCKET_IFNAMES",
        "NCCL_P2P_DISABLE": "NCCL_P2P_DISABLED NCCL_DISABLE_P2P",
        "NCCL_IB_DISABLE": "NCCL_IB_DISABLED NCCL_DISABLE_IB",
        "NCCL_SHM_DISABLE": "NCCL_SHM_DISABLED",
        "NCCL_IB_TIMEOUT": "NCCL_IB_TIME_OUT",
        "NCCL_DEBUG": "NCCL_DEBUG_LEVEL",
        "PYTORCH_CUDA_ALLOC_CONF": (
            "PYTORCH_CUDA_ALLOCATOR_CONF PYTORCH_CUDA_ALLOC_CONFIG PYTORCH_CUDA_ALLOC_CONFS PYTORCH_CUDA_ALLOC "
            "TORCH_CUDA_ALLOC_CONF"
        ),
        "PYTORCH_ALLOC_CONF": "PYTORCH_ALLOC_CONFIG",
        "TOKENIZERS_PARALLELISM": "TOKENIZER_PARALLELISM TOKENIZERS_PARALLEISM TOKENIZERS_PARALELISM",
        "OMP_NUM_THREADS": "OMP_NUM_THREAD OMP_NUMS_THREADS",
        "FORCE_TORCHRUN": "FORCE_TORCH_RUN",
        "CUDA_LAUNCH_BLOCKING": "CUDA_LAUNCH_BLOCK CUDA_LANUCH_BLOCKING",
        "CUDA_DEVICE_MAX_CONNECTIONS": "CUDA_DEVICE_MAX_CONNECTION",
        "TORCH_DISTRIBUTED_DEBUG": "TORCH_DISTRIBUTED_DEBUG_LEVEL",
        "HF_DATASETS_OFFLINE": "HF_DATASET_OFFLINE",
        "TRANSFORMERS_OFFLINE": "TRANSFORMER_OFFLINE",
        "HF_HUB_OFFLINE": "HF_HUB_OFFLINE_MODE",
        "DS_SKIP_CUDA_CHECK": "DS_SKIP_CUDA_CHECKS",
        "ENABLE_AUDIO_OUTPUT": "ENABLE_AUDIO_OUTPUTS",
        "WANDB_DISABLED": "WANDB_DISABLE",
    }
)
_FRAMEWORK_VARIABLE_SPELLINGS = _invert_spellings(
    {
        "NPROC_PER_NODE": "NPROC_PER_NODES NUM_PROC_PER_NODE NPROCS_PER_NODE N_PROC_PER_NODE",
        "NNODES": "NNODE",
        "MASTER_ADDR": "MASTER_ADDRESS MASTER_ADR",
    }
)


class LaunchMisspeltVariable(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Misspelt names among the variables of the command."""
        text = launch.source.text if is_shell_script(launch.source) else ""
        for name, field in launch.variables.items():
            meant = _CORRECT_NAMES.get(name)
            if meant is None and launch.launcher in ("swift", "llamafactory"):
                meant = _FRAMEWORK_VARIABLE_SPELLINGS.get(name)
            place = field.place
            if meant is None or place is None or f"${name}" in text or f"${{{name}" in text:
                continue
            if any(name in script.source.text for script in run.scripts):
                continue
            word = variable_name_place(field, name)
            yield self.finding(
                self.texts["cause"].format(name=name, value=field.get("…"), meant=meant),
                cure=translated("Correct the name to {meant}").format(meant=meant),
                spans=field.span(translated("no program reads this name")),
                fixes=self.fix(
                    translated("correct the name to {name}").format(name=meant), word.edit(meant), safe=False
                )
                if word is not None and not launch.variable(meant).known
                else None,
            )
