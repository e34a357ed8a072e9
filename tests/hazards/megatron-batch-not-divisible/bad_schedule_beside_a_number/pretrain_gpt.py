from megatron.training import pretrain

pretrain()
