"""Training by preferences, rewards and teachers: what ``gonogo plan --task`` has beside plain fine-tuning."""
