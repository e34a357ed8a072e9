#!/bin/bash
python3 -m verl.trainer.main_ppo data.train_batch_size=32 actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1 trainer.n_gpus_per_node=1 trainer.nnodes=1
