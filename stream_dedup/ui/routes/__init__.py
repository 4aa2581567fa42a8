"""The addresses of the application by subject: pages, rules, JSON, signing in, static files."""
