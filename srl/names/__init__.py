"""Where endpoints are found."""
