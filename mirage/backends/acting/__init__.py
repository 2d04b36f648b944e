"""Acting on jobs in the name of their owners, the least privileged way first."""
