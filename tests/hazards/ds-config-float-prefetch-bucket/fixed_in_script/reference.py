import deepspeed


def prepare_reference(model, config):
    hidden = model.config.hidden_size
    config["zero_optimization"].update(
        {
            "reduce_bucket_size": hidden * hidden,
            "stage3_param_persistence_threshold": 10 * hidden,
            "stage3_prefetch_bucket_size": int(0.9 * hidden * hidden),
        }
    )
    engine, *_ = deepspeed.initialize(model=model, config=config)
    return engine.eval()
