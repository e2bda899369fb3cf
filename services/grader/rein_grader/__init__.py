"""Grader: a patch in, a reward or the reason why there is none out."""
