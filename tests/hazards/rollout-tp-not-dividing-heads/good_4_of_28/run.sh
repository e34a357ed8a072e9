#!/bin/bash
python3 -m verl.trainer.main_ppo data.train_batch_size=64 actor_rollout_ref.model.path=model actor_rollout_ref.rollout.tensor_model_parallel_size=4 trainer.n_gpus_per_node=8
