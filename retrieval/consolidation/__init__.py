"""Consolidation: memories become observations, which say what holds and what held."""
