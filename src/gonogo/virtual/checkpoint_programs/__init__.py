"""What is run of a checkpoint where no command says it: PEFT's merge of an adapter, transformers' loading of a model."""
