"""Task execution inside an allocation: order, place and start tasks, and continue them from link to link."""
