"""Boards, windows and alert rules; pure folds over events."""
