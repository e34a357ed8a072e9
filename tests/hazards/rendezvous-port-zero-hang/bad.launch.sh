# zero2.yaml
distributed_type: DEEPSPEED
main_process_port: 0
num_processes: 8
