"""The neural ProjNorm, the predictors it is compared with, and the comparison."""
