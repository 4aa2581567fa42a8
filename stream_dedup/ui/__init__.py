"""The web application: what a stream was merged to, live, in a browser. It only reads."""
