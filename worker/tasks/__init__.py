"""Celery tasks; each calls one service function."""
