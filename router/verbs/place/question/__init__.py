"""What a placement is asked: the models' rates, and the devices."""
