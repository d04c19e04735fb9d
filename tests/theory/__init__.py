"""Tests of `projnorm_theory`: each claim of docs/theory.md, each public function, each error."""
