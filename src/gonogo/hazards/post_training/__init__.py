"""Hazards of preference and RL training: generations, rewards, teachers, and libraries used only there."""
