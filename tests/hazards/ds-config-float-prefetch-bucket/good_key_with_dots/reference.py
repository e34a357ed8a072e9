import deepspeed


def prepare_reference(model, config):
    hidden = model.config.hidden_size
    config.update(
        {
            "zero_optimization.reduce_bucket_size": hidden * hidden,
            "zero_optimization.stage3_param_persistence_threshold": 10 * hidden,
            "zero_optimization.stage3_prefetch_bucket_size": 0.9 * hidden * hidden,
        }
    )
    engine, *_ = deepspeed.initialize(model=model, config=config)
    return engine.eval()
