"""Doubles, strategies and examples that several tests share. No test stands here."""
