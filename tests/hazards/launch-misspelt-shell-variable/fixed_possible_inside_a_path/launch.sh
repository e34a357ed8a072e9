Task=ner
tag=base
torchrun --nproc_per_node 8 train.py --task_name $Task --output_dir runs/$tag/$Task
