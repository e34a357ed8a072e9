"""``gonogo schema``: JSON Schemas of reports and of DeepSpeed configs."""
