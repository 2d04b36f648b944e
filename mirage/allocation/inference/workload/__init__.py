"""Tenants, scenarios and arrivals."""
