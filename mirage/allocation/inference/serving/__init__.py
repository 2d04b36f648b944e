"""The inference gateway, its workers and its handover."""
