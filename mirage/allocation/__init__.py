"""What runs inside an allocation: tasks ordered, placed, started and carried from link to link."""
