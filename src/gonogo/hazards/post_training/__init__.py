"""Hazards of preference and RL training: generations, rewards, teachers, and libraries that only it uses."""
