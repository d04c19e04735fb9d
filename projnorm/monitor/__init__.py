"""A model that is watched batch by batch: estimates over time, and alarms that are seldom false however long."""
