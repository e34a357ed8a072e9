"""Programs that use a checkpoint if the user's command has none: PEFT's merge of an adapter, loading a model."""
