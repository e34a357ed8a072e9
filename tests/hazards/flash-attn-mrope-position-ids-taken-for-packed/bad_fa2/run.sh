llamafactory-cli train sft.yaml
