"""Celery tasks, each a call of one service function, under the names that wake messages carry."""
