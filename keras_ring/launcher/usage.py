"""The error for what a user has typed wrong."""


class UsageError(ValueError):
    """Bad input; its text is one line for the user."""
