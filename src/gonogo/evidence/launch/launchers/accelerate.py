"""``accelerate launch``, and the number of processes that accelerate starts, also on behalf of other launchers."""

from __future__ import annotations

from gonogo.evidence.field import Field
from gonogo.evidence.launch.command_line import OptionTable, split_names
from gonogo.evidence.launch.launchers.counts import (
    UNEVEN_PROCESSES,
    LaunchSettings,
    LaunchSize,
    launch_size_per_node,
    one_process_per_gpu,
    to_positive_count,
)
from gonogo.evidence.launch.launchers.description import LauncherDescription
from gonogo.evidence.launch.launchers.hostfile import parse_number_ranges

_ACCELERATE_OPTIONS = OptionTable(
    split_names(
        """
        config_file mixed_precision num_processes num_machines num_cpu_threads_per_process dynamo_backend
        dynamo_mode gpu_ids machine_rank main_process_ip main_process_port tee log_dir role rdzv_backend
        rdzv_conf max_restarts monitor_interval vm env main_training_function deepspeed_config_file zero_stage
        offload_optimizer_device offload_param_device offload_optimizer_nvme_path offload_param_nvme_path
        gradient_accumulation_steps gradient_clipping zero3_init_flag zero3_save_16bit_model
        deepspeed_hostfile deepspeed_exclusion_filter deepspeed_inclusion_filter deepspeed_multinode_launcher
        deepspeed_moe_layer_cls_names fsdp_version fsdp_offload_params fsdp_min_num_params
        fsdp_sharding_strategy fsdp_reshard_after_forward fsdp_auto_wrap_policy
        fsdp_transformer_layer_cls_to_wrap fsdp_backward_prefetch fsdp_state_dict_type fsdp_forward_prefetch
        fsdp_use_orig_params fsdp_cpu_ram_efficient_loading fsdp_sync_module_states
        fsdp_activation_checkpointing fsdp_activation_checkpointing_offload megatron_lm_tp_degree
        megatron_lm_use_custom_fsdp megatron_lm_no_load_optim megatron_lm_eod_mask_loss
        megatron_lm_overlap_cpu_optimizer_d2h_h2d megatron_lm_no_save_optim megatron_lm_optimizer_cpu_offload
        megatron_lm_use_precision_aware_optimizer megatron_lm_decoder_last_pipeline_num_layers
        megatron_lm_pp_degree megatron_lm_num_micro_batches megatron_lm_sequence_parallelism
        megatron_lm_recompute_activations megatron_lm_use_distributed_optimizer megatron_lm_gradient_clipping
        megatron_lm_recompute_granularity megatron_lm_recompute_method megatron_lm_recompute_num_layers
        megatron_lm_attention_backend megatron_lm_expert_model_parallel_size megatron_lm_context_parallel_size
        megatron_lm_attention_dropout megatron_lm_hidden_dropout megatron_lm_attention_softmax_in_fp32
        megatron_lm_expert_tensor_parallel_size megatron_lm_calculate_per_token_loss
        megatron_lm_use_rotary_position_embeddings fp8_backend fp8_margin fp8_interval fp8_format
        fp8_amax_history_len fp8_amax_compute_algo fp8_override_linear_precision fp8_opt_level
        fp8_enable_fsdp_float8_all_gather fp8_pad_inner_dim aws_access_key_id aws_secret_access_key
        mpirun_hostfile parallelism_config_dp_replicate_size parallelism_config_dp_shard_size
        parallelism_config_tp_size parallelism_config_cp_size parallelism_config_cp_backend
        parallelism_config_cp_comm_strategy parallelism_config_sp_size parallelism_config_sp_backend
        parallelism_config_sp_seq_length parallelism_config_sp_seq_length_is_variable
        parallelism_config_sp_attn_implementation
        """
    ),
    split_names(
        """
        help quiet cpu multi_gpu tpu enable_cpu_affinity dynamo_use_fullgraph dynamo_use_dynamic
        dynamo_use_regional_compilation use_deepspeed use_fsdp use_parallelism_config use_megatron_lm
        same_network module no_python tpu_cluster no_tpu_cluster tpu_use_sudo downcast_bf16
        fp8_use_autocast_during_eval debug
        """
    ),
    {"h": "help", "q": "quiet", "t": "tee", "m": "module"},
)
"""As of accelerate 1.15.0."""


def accelerate_launch_size(settings: LaunchSettings) -> LaunchSize:
    """The launch size from accelerate's options, or those forwarded to it, and from its config."""
    options, config = settings.options, settings.accelerate
    total = options.get("num_processes")
    nodes = options.get("num_machines")
    gpu_ids = options.get("gpu_ids")
    if config is not None:
        total = config("num_processes") if total.absent else total
        nodes = config("num_machines") if nodes.absent else nodes
        gpu_ids = config("gpu_ids") if gpu_ids.absent else gpu_ids
    machines = to_positive_count(nodes, 1)
    if total.absent or total.value in (-1, "-1"):
        chosen = (
            parse_number_ranges(str(gpu_ids.value)) if gpu_ids.known and gpu_ids.value not in ("all", None) else None
        )
        gpus = Field.of(len(chosen), gpu_ids.place) if chosen else one_process_per_gpu(settings.variables)
        return launch_size_per_node(machines, gpus)
    processes = to_positive_count(total)
    if not (processes.known and machines.known):
        unknown = processes if not processes.known else machines
        return LaunchSize(machines, Field.not_known(unknown.place, unknown.reason), processes)
    if processes.value % machines.value:
        reason = UNEVEN_PROCESSES.format(total=processes.value, nodes=machines.value)
        return LaunchSize(machines, Field.not_known(processes.place, reason), processes)
    return LaunchSize(machines, Field.of(processes.value // machines.value, processes.place), processes)


ACCELERATE = LauncherDescription(
    "accelerate",
    accelerate_launch_size,
    commands=("accelerate launch", "accelerate-launch"),
    modules=("accelerate.commands.launch", "accelerate.commands.accelerate_cli launch"),
    options=_ACCELERATE_OPTIONS,
    accelerate_config="config_file",
    package="accelerate",
    example="accelerate launch --config_file accelerate.yaml train.py",
)
