python -m verl.trainer.main_ppo actor_rollout_ref.model.lora_rank=16 actor_rollout_ref.rollout.name=vllm
