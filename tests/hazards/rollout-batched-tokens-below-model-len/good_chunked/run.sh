#!/bin/bash
python3 -m verl.trainer.main_ppo data.train_batch_size=64 data.max_prompt_length=2048 data.max_response_length=8192 actor_rollout_ref.rollout.enable_chunked_prefill=True trainer.n_gpus_per_node=8
