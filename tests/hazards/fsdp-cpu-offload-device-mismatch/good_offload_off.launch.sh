python -m verl.trainer.main_ppo actor.fsdp_config.param_offload=False actor.fsdp_config.optimizer_offload=False
