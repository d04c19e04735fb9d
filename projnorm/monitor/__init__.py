"""The error of a deployed model batch by batch, with alarms whose chance of ever being false is bounded."""
