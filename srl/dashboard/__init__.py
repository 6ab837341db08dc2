"""The dashboard: a web server for runs on this machine, and the page that it sends (`assets/`)."""
