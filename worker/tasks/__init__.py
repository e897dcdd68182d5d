"""Tasks: each calls one service function. The names are what :func:`market.platform.db.session.wake_after_commit` sends."""
