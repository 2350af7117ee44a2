"""Pipeline-parallel training schedules: make, check, time, draw and train them."""
