"""The stand of a measurement: cores set apart, models by themselves, clients that check answers."""
