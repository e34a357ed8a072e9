"""Which options the launchers have, and which of them take a value.

Taken from the launchers' own parsers; a test compares them with the packages that are installed.
"""

from __future__ import annotations

from gonogo.evidence.launch.command_line import OptionTable, names

TORCHRUN = OptionTable(
    names(
        """
        nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf max_restarts monitor_interval
        start_method event_log_handler role log_dir redirects tee local_ranks_filter duplicate_stdout_filters
        duplicate_stderr_filters node_rank master_addr master_port local_addr logs_specs numa_binding
        signals_to_handle shutdown_timeout
        """
    ),
    names(
        """
        help standalone module no_python run_path virtual_local_rank use_env
        """
    ),
    {"h": "help", "m": "module", "r": "redirects", "t": "tee"},
)
"""From torch 2.13.0."""

DEEPSPEED = OptionTable(
    names(
        """
        hostfile include exclude num_nodes num_gpus num_accelerators master_port master_addr node_rank
        launcher launcher_args enable_each_rank_log autotuning bind_core_list ssh_port venv_script log_level
        """
    ),
    names(
        """
        help module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid bind_cores_to_rank quiet
        """
    ),
    {"h": "help", "H": "hostfile", "i": "include", "e": "exclude", "q": "quiet"},
)
"""From deepspeed 0.19.8."""

ACCELERATE = OptionTable(
    names(
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
    names(
        """
        help quiet cpu multi_gpu tpu enable_cpu_affinity dynamo_use_fullgraph dynamo_use_dynamic
        dynamo_use_regional_compilation use_deepspeed use_fsdp use_parallelism_config use_megatron_lm
        same_network module no_python tpu_cluster no_tpu_cluster tpu_use_sudo downcast_bf16
        fp8_use_autocast_during_eval debug
        """
    ),
    {"h": "help", "q": "quiet", "t": "tee", "m": "module"},
)
"""From accelerate 1.15.0."""

SRUN = OptionTable(
    names(
        """
        account nodes ntasks ntasks_per_node gres gpus gpus_per_node gpus_per_task gpus_per_socket cpus_per_task
        cpus_per_gpu mem mem_per_cpu mem_per_gpu partition time job_name nodelist exclude nodefile output error input
        chdir export jobid mpi ntasks_per_gpu ntasks_per_core ntasks_per_socket cpu_bind gpu_bind mem_bind
        distribution qos reservation constraint kill_on_bad_exit wait container_image container_mounts
        container_workdir container_name comment dependency open_mode relative begin het_group overcommit_limit
        time_min threads_per_core hint network tmp signal switches uid gid wckey array mail_type mail_user licenses
        """
    ),
    names(
        """
        exclusive overlap unbuffered label pty no_kill quiet verbose immediate oversubscribe share spread_job
        use_min_nodes preserve_env disable_status no_container_mount_home container_mount_home exact whole requeue
        no_requeue parsable contiguous overcommit x11
        """
    ),
    {
        "A": "account",
        "N": "nodes",
        "n": "ntasks",
        "G": "gpus",
        "c": "cpus_per_task",
        "p": "partition",
        "t": "time",
        "J": "job_name",
        "w": "nodelist",
        "x": "exclude",
        "o": "output",
        "e": "error",
        "i": "input",
        "D": "chdir",
        "q": "qos",
        "C": "constraint",
        "K": "kill_on_bad_exit",
        "W": "wait",
        "m": "distribution",
        "d": "dependency",
        "r": "relative",
        "u": "unbuffered",
        "l": "label",
        "v": "verbose",
        "Q": "quiet",
        "s": "oversubscribe",
        "k": "no_kill",
        "O": "overcommit",
        "a": "array",
        "F": "nodefile",
        "L": "licenses",
        "b": "begin",
        "H": "hold",
    },
)
"""slurm's ``srun`` and ``sbatch`` (23.11)."""

MPIRUN = OptionTable(
    names("np n c N npernode map_by bind_to host H hostfile machinefile x mca ppn hosts f wdir"),
    names("allow_run_as_root oversubscribe tag_output report_bindings quiet v verbose"),
    {name: name for name in ("np", "n", "c", "N", "npernode", "H", "x", "mca", "ppn", "hosts", "f", "v")},
    abbreviations=False,
)
"""Open MPI's and MPICH's ``mpirun``; ``-mca`` takes two words, the second of which is skipped by its launcher."""

DOCKER_RUN = OptionTable(
    names(
        """
        gpus name volume env env_file workdir user network net ipc pid shm_size memory memory_swap cpus cpuset_cpus
        device entrypoint hostname publish runtime ulimit mount label log_driver log_opt restart add_host cap_add
        security_opt group_add platform pull tmpfs uts volumes_from
        """
    ),
    names("rm interactive tty detach privileged init read_only"),
    {
        "v": "volume",
        "e": "env",
        "w": "workdir",
        "u": "user",
        "p": "publish",
        "m": "memory",
        "l": "label",
        "h": "hostname",
        "i": "interactive",
        "t": "tty",
        "d": "detach",
    },
)
"""``docker run`` (27)."""
