from trl import GRPOConfig, GRPOTrainer, TrlParser

if __name__ == "__main__":
    (args,) = TrlParser(GRPOConfig).parse_args_and_config()
    GRPOTrainer(model="Qwen/Qwen3-4B", reward_funcs="Qwen/Qwen3-RM", args=args).train()
