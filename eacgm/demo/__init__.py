"""The two-minute tour: a real job, a planted fault, the alert."""
