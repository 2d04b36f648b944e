"""Runs tasks inside an allocation: a task file, steps on nodes and devices, a journal that outlives each link."""
