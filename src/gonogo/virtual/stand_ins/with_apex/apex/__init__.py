"""Apex's layer norms for a machine that has no Apex; found only by programs that run Megatron-Core.

Other names of Apex are missing, and what asks for them takes the way that it takes without.
"""
