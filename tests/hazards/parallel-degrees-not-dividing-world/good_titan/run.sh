torchrun --nproc_per_node 8 -m torchtitan.train --parallelism.data_parallel_shard_degree 2 --parallelism.tensor_parallel_degree 4
