#!/bin/bash
python3 -m verl.trainer.main_ppo data.train_batch_size=64 trainer.val_generations_to_log_to_wandb=10 trainer.n_gpus_per_node=8
