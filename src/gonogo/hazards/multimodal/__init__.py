"""Hazards of multimodal models: image and audio placeholders and their features."""
