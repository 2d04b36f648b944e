"""Inference requests of several tenants, answered on units of several kinds that share memory bandwidth."""
