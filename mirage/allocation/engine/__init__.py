"""Run tasks inside an allocation: task file, steps on nodes and devices, and a journal that outlives each link."""
