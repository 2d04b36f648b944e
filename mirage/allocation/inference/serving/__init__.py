"""The gateway, its units and its handover."""
