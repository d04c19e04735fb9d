"""The four methods that train: ProjNorm, Rotation, Dis2 and AgreeScore."""
